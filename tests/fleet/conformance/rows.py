"""The providers under test. A row makes a world in its own folder, or returns why this host cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
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
def azure(folder: Path) -> Iterator[World]:
    """Azure's API is a stand-in; its machines boot, and delete themselves with their own identity."""
    reason = lan_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with (
        # The processes of the cloud are no leftovers of a fleet, which are looked for by the test's folder.
        TemporaryDirectory(prefix="tw-azure-") as beside,
        azure_cloud(Path(beside, "cloud"), binary) as cloud,
        mock.patch.dict(os.environ, cloud.api.environment()),
    ):
        document = cloud.document(identity=IDENTITY)
        cloud.api.change(cores={"westeurope": 4 * 8})

        def without_program() -> Provider:
            wrong = [{**document["programs"][0], "sha256": "0" * 64}]
            return make_provider({**document, "programs": wrong}, binary, journal)

        def without_boot(name: str) -> Provider:
            cloud.never_boot.add(f"tradewind-{name}-")
            return make_provider(document, binary, journal)

        provider = make_provider(document, binary, journal)
        yield World(
            journal,
            provider,
            ("azure:westeurope", "azure:eastus"),
            binary,
            most=4,
            start_s=8,
            enrolment=Enrolment(binary, Path(beside, "enrolment")),
            without_program=without_program,
            without_boot=without_boot,
        )


@contextmanager
def gcp(folder: Path) -> Iterator[World]:
    """Instances of a stand-in for Compute Engine, which boot in a network of this host."""
    reason = lan_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    # The processes of the cloud are no leftovers of a fleet, which are looked for by the test's folder.
    with TemporaryDirectory(prefix="tw-gcp-") as beside, gcp_cloud(Path(beside, "cloud"), binary) as cloud:
        document = cloud.document()
        cloud.engine.quotas["us-central1"]["INSTANCES"] = 4.0

        def without_program() -> Provider:
            wrong = [{**document["programs"][0], "sha256": "0" * 64}]
            return make_provider({**document, "programs": wrong}, binary, journal)

        def without_boot(name: str) -> Provider:
            cloud.boots.never.add(name)
            return make_provider(document, binary, journal)

        yield World(
            journal,
            make_provider(document, binary, journal),
            ("gcp:us-central1", "gcp:europe-west4"),
            binary,
            most=4,
            start_s=4,
            enrolment=Enrolment(binary, Path(beside, "enrolment")),
            without_program=without_program,
            without_boot=without_boot,
        )


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


@contextmanager
def aws(folder: Path) -> Iterator[World]:
    """EC2 of moto, whose instances boot in a network of this host, with a quota of four small ones."""
    reason = lan_unavailable()
    if reason:
        pytest.skip(reason)
    journal, binary = FleetJournal(folder / "state"), find_gateway()
    with (
        # The processes of the cloud are no leftovers of a fleet, which are looked for by the test's folder.
        TemporaryDirectory(prefix="tw-aws-") as beside,
        aws_cloud(Path(beside, "cloud"), binary) as cloud,
        mock.patch.dict(os.environ, KEYS),
    ):
        document = cloud.document(regions=["us-east-1", "us-west-2"])
        cloud.set(vcpus=16)

        def without_program() -> Provider:
            wrong = [{**document["programs"][0], "sha256": "0" * 64}]
            return make_provider({**document, "programs": wrong}, binary, journal)

        def without_boot(name: str) -> Provider:
            cloud.never_boots.add(name)
            return make_provider(document, binary, journal)

        yield World(
            journal,
            make_provider(document, binary, journal),
            ("aws:us-east-1", "aws:us-west-2"),
            binary,
            most=4,
            start_s=8,
            enrolment=Enrolment(binary, Path(beside, "enrolment")),
            without_program=without_program,
            without_boot=without_boot,
        )


ROWS: dict[str, Row] = {"aws": aws, "azure": azure, "gcp": gcp, "local": local, "mixed": mixed, "sky": sky, "ssh": ssh}
