"""Rented machines whose clocks are an hour wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.clouds.aws import aws_cloud
from testbed.clouds.clocks import shifted_clock
from testbed.clouds.lan import lan_unavailable
from testbed.servers import InstallError
from tests.fleet.transfers import ready, two_stores
from tests.sky.test_ec2 import Stage
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


def set_clock(stage: Stage, region: str, ahead_s: int) -> None:
    """Let machines of a region boot with a wrong clock."""
    assert stage.cloud.boots is not None
    try:
        stage.cloud.boots.booter.environment[f"aws:{region}"] = shifted_clock(ahead_s)
    except InstallError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_relay_with_a_wrong_clock_enrols_and_moves_data(stage: Stage, ahead_s: int) -> None:
    set_clock(stage, "us-west-2", ahead_s)
    running = stage.start()
    (gateway,) = stage.booted("us-west-2").pids("/gateway serve ")
    assert f"FAKETIME={ahead_s:+d}".encode() in Path(f"/proc/{gateway}/environ").read_bytes().split(b"\0")
    done = running.finish()
    assert any("us-west-2" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_sink_whose_clock_the_store_refuses_ends_the_transfer_with_the_reason(stage: Stage, ahead_s: int) -> None:
    """It enrols, but S3 refuses signatures that are 15 minutes off."""
    set_clock(stage, "eu-west-1", ahead_s)
    done = stage.command.run(*stage.words, "--via", "fleet").expect(7)
    assert "The difference between the request time and the current time is too large" in done.stderr
    side = "ahead of" if ahead_s > 0 else "behind"
    assert re.search(rf"this machine's clock is (3[56]\d\d) s {side} the store's", done.stderr)
    assert "hint: set the clock of the machine that sends the requests" in done.stderr
    stage.check_nothing_is_left()
