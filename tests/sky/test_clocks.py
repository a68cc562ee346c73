"""Rented machines whose clocks are an hour wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.clouds.aws import aws_cloud
from testbed.clouds.booter import BootedMachine
from testbed.clouds.clocks import shifted_clock
from testbed.clouds.lan import lan_unavailable
from testbed.servers import InstallError
from tests.fleet.transfers import ready, two_stores
from tests.sky import test_clouds
from tests.sky.cloud_transfer import CloudTransfer
from tests.sky.test_ec2 import Stage
from tests.sky.test_private import make_stage
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow

HOUR_S = 3600


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with aws_cloud(tmp_path / "cloud", find_gateway()) as cloud:
        assert cloud.boots is not None
        with two_stores(cloud.boots.address, tmp_path) as stores, ready(Stage(cloud, tmp_path, stores)) as made:
            yield made


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def set_clock(stage: CloudTransfer, region: str, ahead_s: int) -> None:
    """Let machines of a region boot with a wrong clock."""
    try:
        variables = shifted_clock(ahead_s)
    except InstallError as error:
        pytest.skip(str(error))
    if isinstance(stage, test_clouds.Stage):
        stage.cloud.environment[f"tradewind-{region.replace(':', '-')}-"] = variables
    else:
        stage.booter.environment[region] = variables


def machine_in(stage: CloudTransfer, region: str) -> BootedMachine:
    """Return the only machine of a region."""
    if isinstance(stage, test_clouds.Stage):
        return stage.cloud.machine(f"{region.replace(':', '-')}-1")
    (machine,) = (machine for machine in stage.machines() if machine.region == region)
    return machine


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
@pytest.mark.parametrize("kind", ["aws", "gcp", "azure"])
def test_a_relay_with_a_wrong_clock_enrols_and_moves_data(
    kind: str, ahead_s: int, tmp_path: Path, opened: ExitStack
) -> None:
    if kind == "azure":
        stage: CloudTransfer = opened.enter_context(test_clouds.stage_in(tmp_path, test_clouds.CLOUD_REGIONS))
    else:
        stage = make_stage(kind, tmp_path, opened)
    region = stage.regions[1]
    set_clock(stage, region, ahead_s)
    running = stage.start()
    (gateway,) = machine_in(stage, region).pids("/gateway serve ")
    assert f"FAKETIME={ahead_s:+d}".encode() in Path(f"/proc/{gateway}/environ").read_bytes().split(b"\0")
    done = running.finish()
    name = region.replace(":", "-")
    assert any(name in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_sink_whose_clock_the_store_refuses_ends_the_transfer_with_the_reason(stage: Stage, ahead_s: int) -> None:
    """It enrols, but S3 refuses signatures that are 15 minutes off."""
    set_clock(stage, "aws:eu-west-1", ahead_s)
    done = stage.command.run(*stage.words, "--via", "fleet").expect(7)
    assert "The difference between the request time and the current time is too large" in done.stderr
    side = "ahead of" if ahead_s > 0 else "behind"
    assert re.search(rf"this machine's clock is (3[56]\d\d) s {side} the store's", done.stderr)
    assert "hint: set the clock of the machine that sends the requests" in done.stderr
    stage.check_nothing_is_left()
