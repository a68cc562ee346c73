"""The providers under test. A row makes a world in its own folder, or returns why this host cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.clouds.aws.cloud import KEYS, aws_cloud
from testbed.clouds.booter import Booter
from testbed.clouds.lan import Lan, lan_unavailable
from testbed.clouds.programs import program_server, program_source
from testbed.clouds.variables import variables
from testbed.sky import unavailable
from testbed.sshd import ssh_servers, sshd_unavailable
from tests.fleet.worlds import Enrolment, World
from tradewind.fleet.boot.user_data import ProgramSource
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Provider
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.binary import find_gateway
from tradewind.model.aws import AwsSettings
from tradewind.model.records import replace

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
def aws(folder: Path) -> Iterator[World]:
    """moto's EC2, whose instances boot on a private network of this host, with a quota of four small ones."""
    reason = lan_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with (
        Lan() as lan,
        program_server(lan.address, binary, folder / "programs") as url,
        Booter(lan, folder / "booted") as booter,
        aws_cloud(booter) as cloud,
        variables(KEYS),
    ):
        cloud.set(vcpus=16)
        settings = AwsSettings(("us-east-1", "us-west-2"), home_cidr=f"{lan.address}/32", endpoint=cloud.endpoint)
        source = program_source(url, binary)

        def provider(program: ProgramSource = source) -> Provider:
            document = {"kind": "aws", "programs": [program.document()], **settings.document()}
            return make_provider(document, binary, journal)

        def without_boot(name: str) -> Provider:
            cloud.never_boots.add(name)
            return provider()

        yield World(
            journal,
            provider(),
            ("aws:us-east-1", "aws:us-west-2"),
            binary,
            most=4,
            start_s=10,
            enrolment=Enrolment(binary, folder / "enrolment"),
            without_program=lambda: provider(replace(source, sha256="0" * 64)),
            without_boot=without_boot,
        )


ROWS: dict[str, Row] = {"local": local, "sky": sky, "ssh": ssh, "aws": aws}
