"""Limits on concurrent requests tune themselves, one for each stage, and say why; a job tells which stage limits it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.chains import chain, with_detour, write
from testbed.drive import Command, Event, Running
from testbed.faults import Answer, Delay, HttpProxy, Request, Rule, TcpProxy
from testbed.places import FilePlace, S3Place
from testbed.servers.process import free_port
from testbed.trees import MIB, write_tree

SIZES = {f"many/{number:04}": 40_000 for number in range(600)} | {f"large/{number}": 24 * MIB for number in range(4)}
LOOKS = 100
PAUSE_S = 0.1


@pytest.fixture
def files(tmp_path: Path) -> FilePlace:
    place = FilePlace(tmp_path / "tree")
    write_tree(place.folder, SIZES)
    return place


@pytest.fixture
def bucket(s3: S3Place, proxy: HttpProxy) -> S3Place:
    """A bucket that the command reaches through the proxy."""
    s3.endpoint = proxy.endpoint
    return s3


def is_object(request: Request) -> bool:
    return request.is_write or request.is_read


def changes(events: list[Event], stage: str) -> list[Event]:
    return [event for event in events if event["event"] == "limit_changed" and event["stage"] == stage]


def words(files: FilePlace, bucket: S3Place, back: Path, direction: str) -> list[str]:
    if direction == "up":
        return ["cp", "-r", files.url, bucket.url, *bucket.flags("dst")]
    return ["cp", "-r", bucket.url, str(back), *bucket.flags("src")]


@pytest.mark.parametrize("hops", [False, True], ids=["local", "over-a-hop"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_store_that_asks_for_fewer_requests_lowers_only_its_side(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, tmp_path: Path, direction: str, hops: bool
) -> None:
    if direction == "down":
        command.run(*words(files, bucket, tmp_path / "back", "up")).expect(0)
    proxy.clear()
    rule = proxy.add(Rule(Answer(503, "SlowDown"), when=is_object, skip=100, count=30))
    topology = ["--topology", str(write(chain("relay-a"), tmp_path / "topology.json"))] if hops else []
    done = command.run(*words(files, bucket, tmp_path / "back", direction), "--json", *topology).expect(0)
    assert rule.expired.is_set()
    limited, other = ("write", "read") if direction == "up" else ("read", "write")
    lowered = [event for event in changes(done.events, limited) if event["reason"] == "slow_down"]
    assert lowered, changes(done.events, limited)
    assert all(event["now"] < event["before"] and event["peer"] == bucket.url.rstrip("/") for event in lowered)
    assert all(event["reason"] in ("waiting", "no_gain") for event in changes(done.events, other))


def shown_while(
    running: Running, command: Command, stage: str, hop: dict[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """Return what ``jobs show`` prints, as JSON and as text, once the job is limited by ``stage`` and ``hop``."""
    running.wait_for_objects(1)
    (job,) = (job for job in command.jobs() if job["state"] == "running")
    for _ in range(LOOKS):
        shown = json.loads(command.run("jobs", "show", str(job["id"]), "--json").stdout)
        limits = shown["limits"] or {}
        if limits.get("slowest") == stage and (hop is None or limits.get("slowest_hop") == hop):
            return shown["limits"], command.run("jobs", "show", str(job["id"])).stdout
        assert running.process.poll() is None, "the job ended first"
        time.sleep(PAUSE_S)
    raise AssertionError(f"never limited by {stage}: {shown['limits']}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "stage", "said"),
    [("up", "write", "writing"), pytest.param("down", "read", "reading", marks=pytest.mark.slow)],
)
def test_a_job_tells_which_store_limits_it(
    command: Command,
    files: FilePlace,
    bucket: S3Place,
    proxy: HttpProxy,
    tmp_path: Path,
    direction: str,
    stage: str,
    said: str,
) -> None:
    if direction == "down":
        command.run(*words(files, bucket, tmp_path / "back", "up")).expect(0)
    proxy.clear()
    proxy.add(Rule(Delay(0.4), when=is_object))
    running = command.start(*words(files, bucket, tmp_path / "back", direction), "--concurrency", "8")
    limits, text = shown_while(running, command, stage)
    assert limits[stage]["max"] == 8 >= limits[stage]["now"] and "network" not in limits
    assert f"{limits[stage]['now']} of 8 {stage}s" in text and f"{said} limits the rate now" in text, text
    running.finish().expect(0)
    for job in command.jobs():
        assert json.loads(command.run("jobs", "show", str(job["id"]), "--json").stdout)["limits"] is None


def test_the_connections_of_a_hop_have_a_limit_too(command: Command, files: FilePlace, tmp_path: Path) -> None:
    topology = write(chain("relay-a", connections=4), tmp_path / "topology.json")
    words = ["cp", "-r", str(files.folder), str(tmp_path / "back"), "--topology", str(topology), "--json"]
    done = command.run(*words, "--limit-rate", "40MB/s").expect(0)
    limits = [event["limits"] for event in done.events if event["event"] == "progress" and "limits" in event]
    assert limits[-1]["network"] == {"now": 4, "max": 4}
    assert limits[-1]["read"]["max"] == limits[-1]["write"]["max"] == 64


def test_a_job_tells_which_hop_of_a_relay_limits_it(command: Command, tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {f"{number:03}": 4 * MIB for number in range(40)})
    with TcpProxy() as between:
        between.target = f"127.0.0.1:{free_port()}"
        between.forward_bytes_per_s = 2e6
        document = with_detour(chain("relay-a", connections=4), "relay-a", "sink", between.target, between.address)
        words = ["cp", "-r", str(tmp_path / "tree"), str(tmp_path / "copy")]
        running = command.start(*words, "--topology", str(write(document, tmp_path / "topology.json")))
        slow = {"gateway": "relay-a", "peer": "sink", "by_relay": True}
        limits, text = shown_while(running, command, "network", slow)
        assert limits["relay_hops"] == [{"gateway": "relay-a", "peer": "sink", "now": 4, "max": 4}]
        assert "; the network from relay-a to sink limits the rate now, relay relay-a says" in text, text
        between.forward_bytes_per_s = None
        done = running.finish().expect(0)
    reported = [event["limits"].get("slowest_hop") for event in done.events if event.get("limits")]
    assert slow in reported
