"""The real command is killed at each of its calls to a cloud in turn, while its machines really boot.

The calls are those of an undisturbed transfer. None before the first change can leave anything, so only the last of
these is a case. Of the others at most POINTS_MAX are taken, evenly, in PARTS tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fleet.transfers import ENDS_S
from tests.fleet.worlds import wait_until
from tests.sky.halts import AwsHalts, CloudHalts, Halts, halts_of

pytestmark = pytest.mark.slow

POINTS_MAX, PARTS = 24, 4
#: Calls after which the machines are left to their leases.
LEFT_ALONE_MAX = 8
#: The longest lease that the ceiling allows, with the time after which a machine ends itself without its gateway.
LEASES_S = 240.0
CHANGES = ("Create", "Run", "regionInstances.bulkInsert", "firewalls.insert", "PUT ", "POST ")
CLOUDS = ("aws", "gcp", "azure")


def points_of(calls: Sequence[str], count_max: int) -> list[int]:
    """Return the numbers of the calls to kill the command at."""
    first = max(0, next(number for number, call in enumerate(calls) if call.startswith(CHANGES)) - 1)
    there = range(first, len(calls))
    step = max(1.0, len(there) / count_max)
    return [there[int(index * step)] for index in range(min(len(there), count_max))]


@pytest.fixture
def halts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CloudHalts]:
    with halts_of(request.param, tmp_path) as made:
        yield made


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("halts", CLOUDS, indirect=True)
def test_a_stranger_sees_and_ends_what_a_killed_command_leaves(halts: Halts, part: int) -> None:
    halts.sweep_after_kills(points_of(halts.whole_run(), POINTS_MAX)[part::PARTS])


@pytest.mark.parametrize("halts", CLOUDS, indirect=True)
def test_what_a_killed_command_leaves_ends_with_its_leases(halts: CloudHalts) -> None:
    """All are listed until then, those of former commands, too. What is left then is not billed by the hour."""
    points = points_of(halts.whole_run(), LEFT_ALONE_MAX)
    for point in points:
        call = halts.kill_at(point)
        halts.check_all_are_listed(f"killed at call {point}, {call}")
    halts.let_time_pass()
    wait_until(lambda: halts.living_regions() == [], LEASES_S)
    wait_until(lambda: all(machine.ended.is_set() for machine in halts.stage.machines()), ENDS_S)
    halts.check_all_are_listed("after all leases")
    halts.sweep("after all leases")


@pytest.mark.parametrize("hidden_s", [0, 20], ids=["listed at once", "listed late"])
@pytest.mark.parametrize("halts", ["aws"], indirect=True)
def test_a_launch_that_races_a_down_is_ended(halts: Halts, hidden_s: int) -> None:
    """The answer to the launch comes when another command has ended the fleet, and may not have seen its machine."""
    launch = halts.whole_run().index("RunInstances")
    assert isinstance(halts, AwsHalts)
    halts.cloud.set(hidden_s=hidden_s)
    halts.halt_at(launch)
    with halts.another_home():
        running = halts.start()
        wait_until(lambda: "RunInstances" in halts.calls())
        (fleet,) = (line.split()[0] for line in halts.stage.command.run("fleet", "list").expect(0).stdout.splitlines())
        halts.stage.command.run("fleet", "down", fleet).expect(0)
        halts.release()
        done = running.finish()
    assert done.code != 0 and "Traceback" not in done.stderr
    wait_until(lambda: halts.living_regions() == [], ENDS_S)
    halts.cloud.set(hidden_s=0)
    halts.sweep("after the race")
