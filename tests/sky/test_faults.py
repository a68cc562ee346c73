"""Faults during an overlay transfer: it ends correctly, reports what happened, and leaves nothing running.

The clock of one gateway is changed by a preloaded library (`skewed_gateway`). The sky injects all other faults.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.drive import Command, Event, Finished, Running
from testbed.sockets import connections_to, cut
from tests.sky.world import OPTIONS, RELAY, SINK, SOURCE, differences, write_files, write_world
from tradewind.gateway.binary import find_gateway
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

VOLUME_BYTES = 60_000_000
#: A goal whose cheapest plan mixes both routes.
GOAL = ("--min-throughput", "75Mbit/s")
OUTAGE_S = 30.0
PATIENCE_S = 200.0
STALL_S = 60.0
"""Default time after which a transfer without any route stops."""
ADVICE = "--replan would plan again"
"""End of the notice about a route that is slower than planned for some seconds."""
OF_SLOW_LINKS = (ADVICE, "nothing was acknowledged for", "answers arrive again")
"""Parts of notices about the direct path, which may be slow while it carries all."""

SKEW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static const char *mark;
    if (!real) { real = dlsym(RTLD_NEXT, "clock_gettime"); mark = getenv("TESTBED_JUMP"); }
    int code = real(clock, now);
    if (!code && clock == CLOCK_REALTIME && mark && !access(mark, F_OK)) now->tv_sec += atol(getenv("TESTBED_JUMP_S"));
    return code;
}
"""


class Stage:
    """A sky, files to move, and the command under test."""

    def __init__(self, command: Command, sky: Sky, file: Path, source: Path) -> None:
        self.command, self.sky, self.file, self.source = command, sky, file, source

    def start(self, copy: Path, *more: str) -> Running:
        return self.command.start("cp", "-r", self.source, copy, *OPTIONS, "--sky", self.file, *(more or GOAL))

    def finish(self, running: Running, copy: Path) -> Finished:
        """Wait for the transfer's end, and check that it succeeded."""
        done = running.finish(PATIENCE_S)
        assert done.code == 0, done.stderr
        assert differences(self.source, copy) == []
        self.nothing_is_left()
        return done

    def nothing_is_left(self) -> None:
        """Check that no process and no fleet of the command is left."""
        self.command.wait_until_alone()
        assert os.listdir(self.command.state / "fleets") == []


@pytest.fixture
def stage(command: Command, tmp_path: Path) -> Iterator[Stage]:
    file = write_world(tmp_path)
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as sky:
        yield Stage(command, sky, file, write_files(tmp_path / "source", VOLUME_BYTES))


def bytes_of(event: Event, relayed: bool) -> int:
    """Return the bytes over the routes with the relay, or over the others."""
    return sum(hop["bytes"] for hop in event["hops"] if ("westus2" in hop["name"]) == relayed)


def moving(event: Event) -> list[Event]:
    """Return the hops that carried bytes."""
    return [hop for hop in event["hops"] if hop["bytes"]]


def routes(event: Event, relayed: bool) -> list[str]:
    """Return the names of these routes, as in notices."""
    return [hop["name"] for hop in event["hops"] if ("westus2" in hop["name"]) == relayed]


def notices(events: list[Event]) -> list[str]:
    """Return the messages of all notices."""
    return [event["message"] for event in events if event["event"] == "notice"]


def over_both(event: Event) -> bool:
    return event["event"] == "progress" and min(bytes_of(event, True), bytes_of(event, False)) > 1_000_000


def last_before_stall(events: list[Event]) -> Event:
    """Return the last progress before the notice that a route stands still."""
    stall = next(index for index, event in enumerate(events) if "stands still" in event.get("message", ""))
    return next(event for event in reversed(events[:stall]) if event["event"] == "progress")


def freeze_relay(stage: Stage, running: Running) -> None:
    stage.sky.freeze("relay-1")


def silence_relay_to_the_sink(stage: Stage, running: Running) -> None:
    """Drop the relay's packets to the sink. All others arrive."""
    stage.sky.set_link("relay-1", "sink-1", one_way=True, up=False)


def silence_relay_to_the_source(stage: Stage, running: Running) -> None:
    """Drop the relay's packets to the source: orders and chunks arrive and are forwarded, but no reply comes back."""
    stage.sky.set_link("relay-1", "source-1", one_way=True, up=False)


LOSSES = (
    freeze_relay,
    pytest.param(silence_relay_to_the_sink, marks=pytest.mark.slow),
    pytest.param(silence_relay_to_the_source, marks=pytest.mark.slow),
)


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.__name__)
def test_the_direct_path_takes_over_from_a_lost_relay(
    stage: Stage, tmp_path: Path, fault: Callable[[Stage, Running], None]
) -> None:
    running = stage.start(tmp_path / "copy")
    running.wait_for(over_both)
    fault(stage, running)
    done = stage.finish(running, tmp_path / "copy")
    last = done.events[-1]["progress"]
    assert bytes_of(last, True) - bytes_of(last_before_stall(done.events), True) < VOLUME_BYTES / 8
    assert last["duplicate_bytes"] > 0
    stalled, *others = [message for message in notices(done.events) if not any(one in message for one in OF_SLOW_LINKS)]
    (lost,) = routes(last, True)
    assert stalled == f"route {lost} stands still; other routes also send what it holds"
    assert others in ([], [f"route {lost} is down"]), "the job may end before the relay counts as dead"


@pytest.mark.parametrize("gateway", ["azure-westus2-1", "azure-canadacentral-1", "gcp-asia-northeast1-1"])
@pytest.mark.parametrize("goal", [GOAL, ("--max-cost", "1USD")], ids=["rate", "ceiling"])
def test_a_machine_that_dies_is_replaced(stage: Stage, tmp_path: Path, gateway: str, goal: tuple[str, ...]) -> None:
    """Cases: a relay, the source, and the sink, which all routes use. Lost bytes are charged again.

    The direct path is slow until the fresh machine carries bytes. Otherwise it may end the job before.
    """
    running = stage.start(tmp_path / "copy", *goal)
    running.wait_for_bytes(VOLUME_BYTES // 6)
    os.kill(running.gateways()[gateway], signal.SIGKILL)
    killed_s = time.monotonic()
    if gateway == "azure-westus2-1":
        stage.sky.set_link(SOURCE, SINK, rate_mbps=8)
    fresh = f"{gateway.rpartition('-')[0]}-2"
    running.wait_for(lambda event: event.get("message") == f"machine {gateway} ended; {fresh} takes its place")
    before = running.events[-1] if running.events[-1]["event"] == "progress" else running.wait_for_bytes(0)
    running.wait_for(lambda event: event["event"] == "progress" and event["bytes_done"] > before["bytes_done"])
    assert time.monotonic() - killed_s < STALL_S / 2, "before the stall would have ended the job"
    running.wait_for(lambda event: event["event"] == "progress" and any(fresh in hop["name"] for hop in moving(event)))
    stage.sky.set_link(SOURCE, SINK, rate_mbps=50)
    done = stage.finish(running, tmp_path / "copy")
    assert not [message for message in notices(done.events) if "could not" in message or "not replaced" in message]


@pytest.mark.slow
def test_a_machine_that_cannot_be_replaced_is_planned_around(stage: Stage, tmp_path: Path) -> None:
    """The relay's network is gone too, so no machine can be started there. The job must not end before that."""
    running = stage.start(tmp_path / "copy", *GOAL, "--duplicates", "0")
    running.wait_for(over_both)
    stage.sky.set_link(SOURCE, SINK, rate_mbps=8)
    stage.sky.vanish("relay-1")
    running.wait_for(lambda event: event.get("message", "").startswith("machine "))
    stage.sky.set_link(SOURCE, SINK, rate_mbps=50)
    done = stage.finish(running, tmp_path / "copy")
    said = [message for message in notices(done.events) if message.startswith("machine ")]
    assert len(said) == 1 and said[0].startswith("machine azure-westus2-1 ended and is not replaced: "), said


@pytest.mark.alone
def test_a_transfer_continues_over_a_lossy_link(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy")
    before = running.wait_for(over_both)
    stage.sky.set_link(SOURCE, SINK, loss=0.02)
    stage.sky.reset_stats()
    done = stage.finish(running, tmp_path / "copy")
    lossy = [path for path in stage.sky.stats().paths if (path.src, path.dst) == ("source-1", "sink-1")]
    assert sum(path.lost for path in lossy) > 0
    # TCP retransmits lost packets over many connections: no request is repeated, and no route is given up.
    last = done.events[-1]["progress"]
    assert bytes_of(last, False) > bytes_of(before, False)
    assert (last["retries"], notices(done.events)) == (0, [])


@pytest.mark.slow
def test_a_source_that_was_cut_off_continues_where_it_stopped(stage: Stage, tmp_path: Path) -> None:
    running = stage.start(tmp_path / "copy")
    before = running.wait_for(over_both)
    stage.sky.set_link(SOURCE, "*", up=False)
    cut_s = time.monotonic()
    with contextlib.suppress(AssertionError):
        running.wait_for(lambda event: event["event"] == "done", timeout_s=OUTAGE_S)
    stage.sky.set_link(SOURCE, "*", up=True)
    assert time.monotonic() - cut_s >= OUTAGE_S, "the job ended while it was cut off"
    done = stage.finish(running, tmp_path / "copy")
    last = done.events[-1]["progress"]
    assert last["bytes_done"] == VOLUME_BYTES > before["bytes_done"]
    said = notices(done.events)
    for name in routes(last, True) + routes(last, False):
        assert said.index(f"route {name} is down") < said.index(f"route {name} is up again")


@pytest.mark.alone
def test_a_ceiling_holds_while_machines_wait(stage: Stage, tmp_path: Path) -> None:
    """Nothing moves, so only the machines cost more, until the ceiling is near."""
    running = stage.start(tmp_path / "copy", "--max-cost", "0.0059USD", "--stall", "3m")
    running.wait_for(lambda event: over_both(event) and event["bytes_done"] > 0.7 * VOLUME_BYTES)
    for end in (RELAY, SINK):
        stage.sky.set_link(SOURCE, end, rate_mbps=0.1)
    done = running.finish(PATIENCE_S)
    assert done.code == 8, done.stderr
    assert "stopped before egress, machines and requests together cost more than the ceiling" in done.stderr
    assert "resume with: tradewind jobs resume" in done.stderr
    stage.command.wait_until_alone()
    # The machines' cost counts over all runs together, even if the links are fast again.
    for end in (RELAY, SINK):
        stage.sky.set_link(SOURCE, end, rate_mbps=100)
    (job,) = stage.command.jobs()
    again = stage.command.run("jobs", "resume", job["id"]).expect(8)
    assert "stopped before egress, machines and requests together cost more than the ceiling" in again.stderr
    stage.nothing_is_left()


@pytest.mark.slow
def test_two_transfers_share_a_relay(stage: Stage, tmp_path: Path) -> None:
    copies = [tmp_path / "one", tmp_path / "two"]
    running = [stage.start(copy, "--min-throughput", "80Mbit/s") for copy in copies]
    for each in running:
        each.wait_for(lambda event: event["event"] == "progress" and bytes_of(event, True) > 1_000_000)
    ended = [each.finish(PATIENCE_S) for each in running]
    for done, copy in zip(ended, copies, strict=True):
        assert done.code == 0, done.stderr
        assert differences(stage.source, copy) == []
        assert bytes_of(done.events[-1]["progress"], True) > VOLUME_BYTES / 4
    stage.nothing_is_left()


def test_a_machine_that_never_boots_ends_the_transfer_before_it_begins(stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "gateway"
    script.write_text(f'#!/bin/sh\n{only("azure-westus2-1", "exit 3")}\nexec {find_gateway()} "$@"\n')
    script.chmod(0o755)
    stage.command.environment["TRADEWIND_GATEWAY"] = str(script)
    done = stage.start(tmp_path / "copy").finish(PATIENCE_S)
    assert done.code == 1 and "gateway azure-westus2-1 did not start" in done.stderr
    assert not (tmp_path / "copy").exists()
    stage.nothing_is_left()


@pytest.mark.slow
def test_a_region_whose_machine_is_gone_is_planned_around(stage: Stage, tmp_path: Path) -> None:
    stage.sky.vanish("relay-1")
    done = stage.finish(stage.start(tmp_path / "copy"), tmp_path / "copy")
    notices = [event["message"] for event in done.events if event["event"] == "notice"]
    assert [line for line in notices if "relay-1 is gone; replanned without these machines" in line], notices
    assert [hop["name"] for hop in done.events[-1]["progress"]["hops"] if "westus2" in hop["name"]] == []
    stage.nothing_is_left()


def test_a_sink_whose_machine_is_gone_is_reported_before_anything_is_moved(stage: Stage, tmp_path: Path) -> None:
    stage.sky.vanish("sink-1")
    done = stage.start(tmp_path / "copy").finish(PATIENCE_S)
    assert done.code == 1 and "sink-1 is gone" in done.stderr
    assert not (tmp_path / "copy").exists()
    stage.nothing_is_left()


@pytest.mark.parametrize("jump_s", [3600, -3600])
@pytest.mark.parametrize("gateway", ["azure-westus2-1", "lead"])
def test_a_clock_that_jumps_an_hour_has_no_effect(stage: Stage, tmp_path: Path, gateway: str, jump_s: int) -> None:
    stage.command.environment["TRADEWIND_GATEWAY"] = str(skewed_gateway(tmp_path, gateway))
    mark = tmp_path / "jump"
    stage.command.environment |= {"TESTBED_JUMP": str(mark), "TESTBED_JUMP_S": str(jump_s)}
    running = stage.start(tmp_path / "copy")
    before = running.wait_for(over_both)
    mark.touch()
    # New connections of the lead and over the relay must complete their handshakes with the new clock.
    pids = running.gateways()
    ends = [stage.sky.machines[name].address for name in ("source-1", "relay-1", "sink-1")]
    broken = [each for end in ends for each in connections_to([pids[gateway]], end)]
    assert broken
    for pid, descriptor in broken:
        cut(pid, descriptor)
    done = stage.finish(running, tmp_path / "copy")
    assert bytes_of(done.events[-1]["progress"], True) > bytes_of(before, True) + 1_000_000


def only(name: str, command: str) -> str:
    """Return a line of a shell script that replaces the gateway program: a command for the gateway `name` only."""
    marks = "$TRADEWIND_MACHINE$TRADEWIND_HOME"
    return f'case "$1 {marks}" in serve*"\\"{name}\\""*) {command};; esac'


def skewed_gateway(folder: Path, name: str) -> Path:
    """Return a gateway program in which the gateway `name` has a clock that jumps when the file TESTBED_JUMP exists."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a clock that jumps needs a C compiler (cc)")
    code, library, script = folder / "skew.c", folder / "skew.so", folder / "skewed"
    code.write_text(SKEW)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    script.write_text(f'#!/bin/sh\n{only(name, f"export LD_PRELOAD={library}")}\nexec {find_gateway()} "$@"\n')
    script.chmod(0o755)
    return script
