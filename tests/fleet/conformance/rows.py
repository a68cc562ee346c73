"""The providers under test. A row makes a world in its own folder, or returns why this host cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_cloud
from testbed.clouds.azure import IDENTITY, azure_cloud
from testbed.clouds.gcp import gcp_cloud
from testbed.clouds.lan import lan_unavailable
from testbed.kubelab import Lab
from testbed.sky import unavailable
from testbed.sshd import ssh_servers, sshd_unavailable
from tests.fleet.kube_world import stage_of
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
def mixed(folder: Path) -> Iterator[World]:
    """Two members with one region each. Both see the same processes, and each must show only its own."""
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    regions = ("site:here", "site:there")
    members = [{"name": region[5:], "regions": [region], "provider": dict(LOCAL)} for region in regions]
    yield World(journal, make_provider({"kind": "mixed", "members": members}, binary, journal), regions, binary)


@contextmanager
def cloud_world(
    folder: Path,
    document: dict[str, Any],
    regions: tuple[str, str],
    never_boot: Callable[[str], object],
    start_s: int = 8,
) -> Iterator[World]:
    """Machines that boot, four at most in the first region. `never_boot` gets the name of one that must not."""
    binary, journal = find_gateway(), FleetJournal(folder / "state")

    def provider(**changes: Any) -> Provider:
        return make_provider({**document, **changes}, binary, journal)

    def without_boot(name: str) -> Provider:
        never_boot(name)
        return provider()

    # Processes beside the fleet are no leftovers of it, which are looked for by the test's folder.
    with TemporaryDirectory(prefix="tw-owner-") as beside, closing(Enrolment(binary, Path(beside, "o"))) as enrolment:
        yield World(
            journal,
            provider(),
            regions,
            binary,
            most=4,
            start_s=start_s,
            enrolment=enrolment,
            without_program=lambda: provider(programs=[{**document["programs"][0], "sha256": "0" * 64}]),
            without_boot=without_boot,
        )


@contextmanager
def cloud_folder(name: str) -> Iterator[Path]:
    """Yield a folder for a cloud whose machines boot, apart from the test's own; skip where none can."""
    if reason := lan_unavailable():
        pytest.skip(reason)
    with TemporaryDirectory(prefix=f"tw-{name}-") as made:
        yield Path(made, "cloud")


@contextmanager
def azure(folder: Path) -> Iterator[World]:
    """Azure's API is a stand-in; its machines boot, and delete themselves with their own identity."""
    with (
        cloud_folder("azure") as beside,
        azure_cloud(beside, find_gateway()) as cloud,
        mock.patch.dict(os.environ, cloud.api.environment()),
    ):
        cloud.api.change(cores={"westeurope": 4 * 8})
        document, regions = cloud.document(identity=IDENTITY), ("azure:westeurope", "azure:eastus")
        with cloud_world(folder, document, regions, lambda name: cloud.never_boot.add(f"tradewind-{name}-")) as world:
            yield world


@contextmanager
def gcp(folder: Path) -> Iterator[World]:
    """Instances of a stand-in for Compute Engine, which boot in a network of this host."""
    with cloud_folder("gcp") as beside, gcp_cloud(beside, find_gateway()) as cloud:
        cloud.engine.quotas["us-central1"]["INSTANCES"] = 4.0
        regions = ("gcp:us-central1", "gcp:europe-west4")
        with cloud_world(folder, cloud.document(), regions, cloud.boots.never.add, start_s=4) as world:
            yield world


@contextmanager
def aws(folder: Path) -> Iterator[World]:
    """EC2 of moto, whose instances boot in a network of this host, with a quota of four small ones."""
    with (
        cloud_folder("aws") as beside,
        aws_cloud(beside, find_gateway()) as cloud,
        mock.patch.dict(os.environ, KEYS),
    ):
        cloud.set(vcpus=16)
        document, regions = cloud.document(regions=["us-east-1", "us-west-2"]), ("aws:us-east-1", "aws:us-west-2")
        with cloud_world(folder, document, regions, cloud.never_boots.add) as world:
            yield world


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


ROWS: dict[str, Row] = {"aws": aws, "azure": azure, "gcp": gcp, "local": local, "mixed": mixed, "sky": sky, "ssh": ssh}
