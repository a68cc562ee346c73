"""The providers under test. A row makes a world in its own folder, or returns why this host cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.sky import unavailable
from testbed.sshd import ssh_servers, sshd_unavailable
from tests.fleet.worlds import Enrolment, World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Provider
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.binary import find_gateway

__all__ = ["ROWS", "Row"]

Row = Callable[[Path], AbstractContextManager[World]]

SKY = {
    "regions": {"site:a": {"name": "a", "machines": 2}, "site:b": {"name": "b"}},
    "links": [{"between": ["site:a", "site:b"], "rtt_ms": 10, "rate": "100Mbit/s"}],
}


@contextmanager
def local(folder: Path) -> Iterator[World]:
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    yield World(journal, make_provider(LOCAL, binary, journal), ("site:here", "site:there"), binary)


@contextmanager
def sky(folder: Path) -> Iterator[World]:
    from tradewind.sky.file import network_from_document
    from tradewind.sky.running import Sky

    reason = unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with Sky.up(network_from_document(SKY, Path())) as running:
        provider = make_provider({"kind": "sky", "sky": str(running.folder)}, binary, journal)
        yield World(journal, provider, ("site:a", "site:b"), binary, most=2)


@contextmanager
def ssh(folder: Path) -> Iterator[World]:
    """Two hosts with real SSH servers, behind a jump host."""
    from tradewind.sky.file import network_from_document
    from tradewind.sky.running import Sky

    reason = unavailable() or sshd_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with (
        Sky.up(network_from_document(SKY, Path())) as sky,
        TemporaryDirectory(prefix="tw-ssh-") as short,
        ssh_servers(sky, ("a-1", "b-1"), Path(short, "ssh"), jump="a-2") as config,
    ):
        hosts = [
            {
                "name": name,
                "region": region,
                "address": sky.machines[name].address,
                "gateways": 4,
                "folder": str(folder / f"on {name}"),
            }
            for name, region in (("a-1", "site:a"), ("b-1", "site:b"))
        ]
        document = {"kind": "ssh", "hosts": hosts, "ssh_config": str(config)}
        provider = make_provider(document, binary, journal)
        yield World(journal, provider, ("site:a", "site:b"), binary, most=4, start_s=8)


@contextmanager
def gcp(folder: Path) -> Iterator[World]:
    """Instances of a stand-in for Compute Engine, which boot in a network of this host."""
    from testbed.clouds.booter import Booter
    from testbed.clouds.gcp.booting import Boots
    from testbed.clouds.gcp.cloud import Cloud
    from testbed.clouds.gcp.server import ComputeEngine
    from testbed.clouds.lan import Lan, lan_unavailable
    from testbed.clouds.programs import program_server, program_source

    reason = lan_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with (
        Lan() as lan,
        # A test looks for processes that name its folder.
        TemporaryDirectory(prefix="tw-gcp-") as aside,
        program_server(lan.address, binary, Path(aside, "programs")) as url,
        Booter(lan, folder / "machines") as booter,
    ):
        boots = Boots(booter)
        cloud = Cloud(boot=boots)
        cloud.quotas["us-central1"]["INSTANCES"] = 4.0
        source = program_source(url, binary)
        document = {
            "kind": "gcp",
            "project": cloud.project,
            "programs": [source.document()],
            "home_cidr": f"{lan.address}/32",
        }

        def without_boot(name: str) -> Provider:
            boots.never.add(name)
            return make_provider(document, binary, journal)

        with ComputeEngine(cloud) as api:
            document["endpoint"] = api.endpoint
            wrong = {**document, "programs": [{**source.document(), "sha256": "0" * 64}]}
            yield World(
                journal,
                make_provider(document, binary, journal),
                ("gcp:us-central1", "gcp:europe-west4"),
                binary,
                most=4,
                start_s=4,
                enrolment=Enrolment(binary, Path(aside, "owner")),
                without_program=lambda: make_provider(wrong, binary, journal),
                without_boot=without_boot,
            )


ROWS: dict[str, Row] = {"local": local, "sky": sky, "ssh": ssh, "gcp": gcp}
