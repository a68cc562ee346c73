"""Transfers over machines without public addresses, in emulated clouds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.clouds.aws import aws_cloud
from testbed.clouds.azure import azure_cloud
from testbed.clouds.filters import accept_only, drop_inbound, dropped_packets, filter_unavailable, only_to
from testbed.clouds.gcp import gcp_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.clouds.proxy import forward_proxy
from testbed.servers import InstallError
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.transfers import ready, two_stores
from tests.sky import test_clouds, test_compute_engine, test_ec2
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow

PRIVATE, JOINED = "public_address = false", "joined = true"
AZURE_ONLY = ("azure:westeurope", "site:none", "azure:eastus")

Stage = test_ec2.Stage | test_clouds.Stage | test_compute_engine.Stage


def make_stage(kind: str, folder: Path, opened: ExitStack) -> Stage:
    """Return a stage in an emulated cloud, which `opened` ends."""
    if reason := lan_unavailable():
        pytest.skip(reason)
    binary = find_gateway()
    if kind == "aws":
        aws = opened.enter_context(aws_cloud(folder / "cloud", binary))
        assert aws.boots is not None
        stores = opened.enter_context(two_stores(aws.boots.address, folder))
        return opened.enter_context(ready(test_ec2.Stage(aws, folder, stores)))
    if kind == "azure":
        azure = opened.enter_context(azure_cloud(folder / "cloud", binary))
        stores = opened.enter_context(two_stores(test_clouds.home_of(azure), folder))
        return opened.enter_context(ready(test_clouds.Stage(azure, folder, stores, AZURE_ONLY)))
    gcp = opened.enter_context(gcp_cloud(folder / "cloud", binary))
    stores = opened.enter_context(two_stores(gcp.address, folder))
    return opened.enter_context(ready(test_compute_engine.Stage(gcp, folder, stores)))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "kind, settings", [("aws", (PRIVATE, JOINED)), ("azure", (PRIVATE, JOINED)), ("gcp", (PRIVATE,))]
)
def test_private_machines_of_two_regions_move_the_bytes(
    kind: str, settings: tuple[str, ...], tmp_path: Path, opened: ExitStack
) -> None:
    """AWS and Azure: the user has joined the networks of the regions. Google's networks span regions. Filters admit
    their network to the port for data, home to the one for control, and nothing else.
    """
    stage = make_stage(kind, tmp_path, opened)
    home = stage.home_cidr.removesuffix("/32")
    network = f"{home.rpartition('.')[0]}.0/24"
    filtered(stage, accept_only((network, DATA_PORT), (home, CONTROL_PORT)))
    stage.configure(settings=settings)
    running = stage.start()
    for machine in [one for one in stage.machines() if not one.ended.is_set()]:
        with pytest.raises(TimeoutError):
            socket.create_connection((machine.address, 22), timeout=1.0)
        (gateway,) = machine.pids("/gateway serve ")
        assert dropped_packets(gateway) > 0
    done = running.finish()
    assert sum(hop["bytes"] for hop in done.summary["progress"]["hops"]) > 0
    stage.check(done)


def filtered(stage: Stage, rules: str, region: str = "*") -> None:
    """Let machines of a region, or of all, boot with a packet filter."""
    try:
        if reason := filter_unavailable():
            pytest.skip(reason)
    except InstallError as error:
        pytest.skip(str(error))
    stage.booter.filters[region] = rules


@pytest.fixture
def server() -> Iterator[LocalServer]:
    if reason := sshd_unavailable():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as made:
        yield made


def test_a_sink_whose_network_drops_all_inbound_connections_only_dials_out(
    tmp_path: Path, opened: ExitStack, server: LocalServer
) -> None:
    """The source is a host that accepts connections. The sink calls home, and dials the source."""
    aws = opened.enter_context(aws_cloud(tmp_path / "cloud", find_gateway()))
    assert aws.boots is not None
    stores = opened.enter_context(two_stores(aws.boots.address, tmp_path))
    regions = ("site:here", "site:none", "aws:us-east-1")
    stage = opened.enter_context(ready(test_ec2.Stage(aws, tmp_path, stores, regions, "--max-vms", "1")))
    filtered(stage, drop_inbound(), "aws:us-east-1")
    stage.configure(*host_table(server, aws.boots.address, tmp_path / "on the host"), settings=(PRIVATE,))
    running = stage.start()
    sink = stage.booted("us-east-1")
    with pytest.raises(TimeoutError):
        socket.create_connection((sink.address, DATA_PORT), timeout=1.0)
    (gateway,) = sink.pids("/gateway serve ")
    assert dropped_packets(gateway) > 0
    done = running.finish()
    stage.check(done)


def test_a_sink_that_reaches_nothing_but_a_proxy_stores_through_it(
    tmp_path: Path, opened: ExitStack, server: LocalServer
) -> None:
    """It accepts the connections of home and of the source. Its program and its store it reaches by the proxy alone."""
    aws = opened.enter_context(aws_cloud(tmp_path / "cloud", find_gateway()))
    assert aws.boots is not None
    home = aws.boots.address
    try:
        proxy = opened.enter_context(forward_proxy(home, tmp_path / "proxy"))
    except InstallError as error:
        pytest.skip(str(error))
    stores = opened.enter_context(two_stores(home, tmp_path, tls=True))
    regions = ("site:here", "site:none", "aws:us-east-1")
    stage = opened.enter_context(ready(test_ec2.Stage(aws, tmp_path, stores, regions, "--max-vms", "1")))
    filtered(stage, only_to(f"{proxy.address} . {proxy.port}"), "aws:us-east-1")
    stage.configure(*host_table(server, home, tmp_path / "on the host"), settings=(f'proxy = "{proxy.url}"',))
    stage.check(stage.command.run(*stage.words, "--via", "fleet"))
    assert any("/tradewind-gateway " in line for line in proxy.requests("GET"))
    assert any(stores[1].endpoint.removeprefix("https://") in line for line in proxy.requests("CONNECT"))


def host_table(server: LocalServer, address: str, folder: Path) -> list[str]:
    """Return the tables of the configuration for this host as a machine that accepts connections."""
    return [
        "[ssh]",
        f'config = "{server.config}"',
        "[[ssh.hosts]]",
        'name = "here"',
        'region = "site:here"',
        f'address = "{address}"',
        f'folder = "{folder}"',
    ]


@pytest.mark.parametrize("kind", ["aws", "azure"])
def test_regions_that_are_not_joined_are_refused_in_one_line_before_machines_start(
    kind: str, tmp_path: Path, opened: ExitStack
) -> None:
    stage = make_stage(kind, tmp_path, opened)
    stage.configure(settings=(PRIVATE,))
    done = stage.command.run(*stage.words, "--via", "fleet")
    assert done.code != 0
    assert "cannot connect, and no region joins them" in done.stderr and "not `joined = true`" in done.stderr
    assert stage.machines() == []
