"""Transfers over machines without public addresses, in emulated clouds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.clouds.aws import aws_cloud
from testbed.clouds.azure import azure_cloud
from testbed.clouds.gcp import gcp_cloud
from testbed.clouds.lan import lan_unavailable
from tests.fleet.transfers import ready, two_stores
from tests.sky import test_clouds, test_compute_engine, test_ec2
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
    """AWS and Azure: the user has joined the networks of the regions. Google's networks span regions."""
    stage = make_stage(kind, tmp_path, opened)
    stage.configure(settings=settings)
    done = stage.start().finish()
    assert sum(hop["bytes"] for hop in done.summary["progress"]["hops"]) > 0
    stage.check(done)


@pytest.mark.parametrize("kind", ["aws", "azure"])
def test_regions_that_are_not_joined_are_refused_in_one_line_and_nothing_is_left(
    kind: str, tmp_path: Path, opened: ExitStack
) -> None:
    stage = make_stage(kind, tmp_path, opened)
    stage.configure(settings=(PRIVATE,))
    done = stage.command.run(*stage.words, "--via", "fleet")
    assert done.code != 0
    assert "neither accepts connections" in done.stderr and "`joined = true`" in done.stderr
    stage.check_nothing_is_left()
