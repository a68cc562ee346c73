"""The providers under test. A row makes a world in its own folder, or returns why this host cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.kubelab import Lab
from testbed.sky import unavailable
from testbed.sshd import ssh_servers, sshd_unavailable
from tests.fleet.kube_world import stage_of
from tests.fleet.worlds import World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Provider
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.binary import find_gateway

__all__ = ["ROWS", "Row", "kubernetes"]

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
def mixed(folder: Path) -> Iterator[World]:
    """Two members with one region each. Both see the same processes, and each must show only its own."""
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    regions = ("site:here", "site:there")
    members = [{"name": region[5:], "regions": [region], "provider": dict(LOCAL)} for region in regions]
    yield World(journal, make_provider({"kind": "mixed", "members": members}, binary, journal), regions, binary)


@contextmanager
def kubernetes(folder: Path, lab: Lab) -> Iterator[World]:
    """A namespace in each of two real clusters, whose pods other machines reach through Services."""
    with stage_of(lab, folder, "restricted") as stage:
        journal, binary = FleetJournal(folder / "state"), find_gateway()

        def without_boot(name: str) -> Provider:
            document = stage.document()
            document["clusters"][1] |= {"node_selector": {"pool": "none"}, "autoscales": True, "wait_s": 1}
            return make_provider(document, binary, journal)

        yield World(
            journal,
            stage.provider(),
            ("site:a", "site:b"),
            binary,
            most=4,
            start_s=12,
            enrolment=stage.enrolment,
            without_program=lambda: stage.provider(image="local.test/none:1"),
            without_boot=without_boot,
        )


ROWS: dict[str, Row] = {"local": local, "mixed": mixed, "sky": sky, "ssh": ssh}
