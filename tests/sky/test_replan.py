"""A slow link or a lost relay: work moves to other routes and, with `--replan`, to newly planned ones."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command, Event, Finished, Running
from tests.sky.world import differences, write_files
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

SOURCE, RELAY, OTHER, SINK = "azure:canadacentral", "azure:westus2", "azure:eastus", "gcp:asia-northeast1"
#: Scaled: direct 50 Mbit/s, over one relay 100, over the other 90.
WORLD: dict[str, Any] = {
    "scale": 0.01,
    "regions": {
        SOURCE: {"name": "source", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        RELAY: {"name": "relay", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        OTHER: {"name": "other", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        SINK: {"name": "sink", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
    },
    "links": [
        {"between": [SOURCE, SINK], "rtt_ms": 60, "rate": "5Gbit/s"},
        {"between": [SOURCE, RELAY], "rtt_ms": 20, "rate": "14Gbit/s"},
        {"between": [RELAY, SINK], "rtt_ms": 40, "rate": "10Gbit/s"},
        {"between": [SOURCE, OTHER], "rtt_ms": 20, "rate": "14Gbit/s"},
        {"between": [OTHER, SINK], "rtt_ms": 60, "rate": "9Gbit/s"},
    ],
}
VOLUME_BYTES = 240_000_000
PATIENCE_S = 200.0


class Stage:
    """A sky, files to move, and the command under test."""

    def __init__(self, command: Command, sky: Sky, file: Path, source: Path) -> None:
        self.command, self.sky, self.file, self.source = command, sky, file, source

    def start(self, copy: Path, *more: str) -> Running:
        ends = ("--src-region", SOURCE, "--dst-region", SINK)
        return self.command.start("cp", "-r", self.source, copy, "--via", "sky", *ends, "--sky", self.file, *more)

    def finish(self, running: Running, copy: Path) -> Finished:
        """Wait for the transfer's end, and check that it succeeded."""
        done = running.finish(PATIENCE_S)
        assert done.code == 0, done.stderr
        assert differences(self.source, copy) == []
        self.command.wait_until_alone()
        assert os.listdir(self.command.state / "fleets") == []
        return done


@pytest.fixture
def stage(command: Command, tmp_path: Path) -> Iterator[Stage]:
    file = tmp_path / "world.json"
    file.write_text(json.dumps(WORLD), encoding="utf-8")
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as sky:
        yield Stage(command, sky, file, write_files(tmp_path / "source", VOLUME_BYTES))


def carried(event: Event, place: str) -> int:
    """Return the bytes over the routes through a place; over routes without a relay for an empty name."""
    hops = event["hops"]
    return sum(hop["bytes"] for hop in hops if (place in hop["name"] if place else hop["name"].count("→") == 1))


def moving(event: Event) -> bool:
    return event["event"] == "progress" and int(event["bytes_done"]) > 10_000_000


def notices(done: Finished) -> list[str]:
    return [event["message"] for event in done.events if event["event"] == "notice"]


def is_replanned(event: Event) -> bool:
    return event["event"] == "notice" and "replanned, now" in event["message"]


def slow_down(stage: Stage, rate_mbps: float = 50 / 3) -> None:
    """Set the rate of the direct link, by default a third of its original rate."""
    stage.sky.set_link(SOURCE, SINK, rate_mbps=rate_mbps)


def carried_in_all(event: Event) -> int:
    """Return the number of acknowledged bytes, with repeated ones counted each time."""
    return sum(hop["bytes"] for hop in event["hops"])


@pytest.mark.alone
def test_traffic_of_a_slow_link_moves_to_other_routes_within_seconds(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy", "--min-throughput", "75Mbit/s")
    before = running.wait_for(lambda event: moving(event) and len(event["hops"]) == 2)
    # A third of its planned 19 Mbit/s.
    slow_down(stage, rate_mbps=19 / 3)
    done = stage.finish(running, tmp_path / "copy")
    reports = [event for event in done.events if event["event"] == "progress"] + [done.events[-1]["progress"]]
    relayed = [carried_in_all(report) - carried(report, "") for report in reports]
    last_relayed_s = next(
        report["elapsed_s"] for report, count in zip(reports, relayed, strict=True) if count == relayed[-1]
    )
    # With a window of 64 MiB on the slow link, the others would have ended a minute earlier.
    assert reports[-1]["elapsed_s"] - last_relayed_s < 10.0
    assert carried(reports[-1], "") - carried(before, "") < VOLUME_BYTES * 0.15
    said = [line for line in notices(done) if "--replan would plan again" in line]
    assert len(said) <= 1 and not any(map(is_replanned, done.events))


@pytest.mark.slow
def test_with_replan_a_slow_link_is_replaced_by_a_new_relay(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy", "--min-throughput", "40Mbit/s", "--replan")
    before = running.wait_for(moving)
    assert [hop["name"].count("→") for hop in before["hops"]] == [1], "the first plan has only the direct route"
    slow_down(stage)
    done = stage.finish(running, tmp_path / "copy")
    last = done.events[-1]["progress"]
    assert any(map(is_replanned, done.events)), notices(done)
    assert carried(last, "westus2") + carried(last, "eastus") > VOLUME_BYTES / 4
    assert carried_in_all(last) == VOLUME_BYTES, "acknowledged bytes are not sent again"


@pytest.mark.slow
def test_with_replan_a_lost_relay_is_replaced_by_another(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy", "--min-throughput", "75Mbit/s", "--replan")
    running.wait_for(lambda event: moving(event) and carried_in_all(event) > carried(event, ""))
    (relay,) = [name for name in running.gateways() if "westus2" in name or "eastus" in name]
    other = "eastus" if "westus2" in relay else "westus2"
    place = stage.sky.machines_in("azure:westus2" if "westus2" in relay else "azure:eastus")[0].name
    stage.sky.vanish(place)
    running.wait_for(is_replanned)
    done = stage.finish(running, tmp_path / "copy")
    last = done.events[-1]["progress"]
    assert carried(last, other) > 0
    # Only an object that was being closed over the relay when it died may have to be restarted.
    again_bytes = carried_in_all(last) - VOLUME_BYTES
    assert 0 <= again_bytes <= 5_000_000, "acknowledged bytes are not sent again"


@pytest.mark.slow
def test_a_job_that_is_interrupted_after_a_change_resumes_with_the_new_plan(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy", "--min-throughput", "40Mbit/s", "--replan")
    running.wait_for(moving)
    slow_down(stage)
    running.wait_for(is_replanned)
    running.signal(signal.SIGINT)
    stopped = running.finish(PATIENCE_S)
    assert stopped.code == 130, stopped.stderr
    resumed = stage.command.run("jobs", "resume", stopped.events[0]["job_id"], "--json")
    assert resumed.code == 0, resumed.stderr
    last = resumed.events[-1]["progress"]
    assert carried(last, "westus2") + carried(last, "eastus") > 0
    assert differences(stage.source, tmp_path / "copy") == []
    # Parts of an earlier run that the sink only checks are not carried again.
    assert carried_in_all(last) == VOLUME_BYTES - last["bytes_earlier"], "acknowledged bytes are not sent again"
    stage.command.wait_until_alone()


@pytest.mark.slow
def test_a_resumed_job_is_replanned_and_healed_like_a_new_one(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy", "--min-throughput", "40Mbit/s", "--replan")
    running.wait_for(moving)
    running.signal(signal.SIGINT)
    stopped = running.finish(PATIENCE_S)
    assert stopped.code == 130 and not any(map(is_replanned, stopped.events)), stopped.stderr
    resumed = stage.command.start("jobs", "resume", stopped.events[0]["job_id"])
    resumed.wait_for(moving)
    slow_down(stage)
    resumed.wait_for(is_replanned)
    relay = resumed.wait_for(lambda event: moving(event) and carried_in_all(event) > carried(event, ""))
    (name,) = {part for hop in relay["hops"] for part in hop["name"].split(" → ")[1:-1]}
    os.kill(resumed.gateways()[name], signal.SIGKILL)
    resumed.wait_for(lambda event: event["event"] == "notice" and f"machine {name} ended" in event["message"])
    done = stage.finish(resumed, tmp_path / "copy")
    assert any("takes its place" in line for line in notices(done)), notices(done)
