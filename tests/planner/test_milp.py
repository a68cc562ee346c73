"""Branch and bound in a child process, which the kernel ends at the time limit and which is never left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.planner.test_bounded_multicast import checked, clouds, cpu_s
from tradewind.model.goal import Cheapest, Fastest, Goal, MinThroughput
from tradewind.planner import milp, solver
from tradewind.planner.linear import MilpModel
from tradewind.planner.milp import MilpLimits, MilpStatus, end_children, solve_in_child, solve_milp
from tradewind.planner.multicast import prepare_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer

STALL = (
    "import sys; sys.path[:] = sys.argv[3:]; from tests.planner import stalled_child; "
    "stalled_child.serve_child(*sys.argv[1:3])"
)
"""A child whose HiGHS reports one point and then computes for ever."""
LIMITS = MilpLimits(1e9, 60.0, 1e-7, 10)


@pytest.fixture(autouse=True, name="children")
def _children() -> Iterator[Callable[[], list[int]]]:
    """Yield a function that lists the children that a test started, without servers of other tests."""
    end_children()
    earlier = set(children_of_this_thread())
    yield lambda: [pid for pid in children_of_this_thread() if pid not in earlier]
    end_children()


def knapsack() -> MilpModel:
    """Return a model of three items worth 5, 4 and 3, not all of which fit."""
    return MilpModel(
        costs=np.array([-5.0, -4.0, -3.0]),
        lower=np.zeros(3),
        upper=np.ones(3),
        row_lower=np.array([-np.inf, -np.inf, -np.inf]),
        row_upper=np.array([5.0, 11.0, 8.0]),
        row_start=np.array([0, 3, 6, 9]),
        column=np.tile(np.arange(3), 3),
        value=np.array([2.0, 3, 1, 4, 1, 2, 3, 4, 2]),
        integer=np.ones(3, dtype=np.bool_),
    )


def distribution() -> Transfer:
    catalog, regions = clouds(5, 8)
    return prepare_multicast(catalog, regions[0], regions[1:4], 300.0, PlanningLimits(machines_per_region=2))


def children_of_this_thread() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()]


def test_a_child_gives_the_same_answer_as_this_process() -> None:
    child, here = solve_in_child(knapsack(), None, LIMITS), solve_milp(knapsack(), None, LIMITS)
    assert child.status is here.status is MilpStatus.OPTIMAL
    assert child.found.objective == here.found.objective == pytest.approx(-9.0)
    assert child.work == here.work


def test_a_plan_is_the_same_with_and_without_a_child(
    monkeypatch: pytest.MonkeyPatch, children: Callable[[], list[int]]
) -> None:
    goals: list[Goal] = [Cheapest(), Fastest(), MinThroughput(2.0)]
    here = [checked(distribution(), goal) for goal in goals]
    assert not children()
    monkeypatch.setattr(solver, "CHILD_COLUMNS_MIN", 0)
    assert [checked(distribution(), goal) for goal in goals] == here
    assert len(children()) == 1, "one child serves all"


def test_a_stalled_search_is_ended_and_its_solution_is_kept(
    monkeypatch: pytest.MonkeyPatch, children: Callable[[], list[int]]
) -> None:
    monkeypatch.setattr(milp, "PROGRAM", STALL)
    before = cpu_s()
    solution = solve_in_child(knapsack(), None, replace(LIMITS, cpu_s=1.0))
    assert solution.status is MilpStatus.STOPPED
    assert (solution.found.bound, solution.found.objective) == (-12.0, -5.0)
    assert solution.work > 0.0
    assert not children()
    assert cpu_s() - before <= 1.0 + 6.0, "the limit, whole seconds, and the start of the child"


def test_a_plan_whose_searches_all_stall_is_valid_and_states_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    best = checked(distribution(), MinThroughput(2.0))
    monkeypatch.setattr(solver, "CHILD_COLUMNS_MIN", 0)
    monkeypatch.setattr(milp, "PROGRAM", STALL.replace("serve_child", "stall"))
    transfer = distribution()
    limited = replace(transfer, settings=replace(transfer.settings, time_limit_s=0.2, work_max=20_000.0))
    plan = checked(limited, MinThroughput(2.0))
    assert plan.cost.total_usd * (1 - plan.gap) <= best.cost.total_usd * (1 + 1e-6)
    assert best.cost.total_usd * (1 - best.gap) <= plan.cost.total_usd * (1 + 1e-6)


def test_a_child_that_is_killed_is_replaced(children: Callable[[], list[int]]) -> None:
    solve_in_child(knapsack(), None, LIMITS)
    (first,) = children()
    os.kill(first, signal.SIGKILL)
    assert solve_in_child(knapsack(), None, LIMITS).status is MilpStatus.OPTIMAL
    assert first not in children()


def test_a_child_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp, "PROGRAM", "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="exit code 3"):
        solve_in_child(knapsack(), None, LIMITS)


def interrupted(signal_number: int) -> tuple[int, bool]:
    """End a process whose search stalls; return its exit code, and whether its child ended too."""
    code = (
        f"from tradewind.planner import milp; milp.PROGRAM = {STALL!r}\n"
        "from dataclasses import replace; from tests.planner.test_milp import LIMITS, knapsack\n"
        "child = milp._Child(); milp._free.append(child); print(child._process.pid, flush=True)\n"
        "milp.solve_in_child(knapsack(), None, replace(LIMITS, cpu_s=1e6))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        seen = os.pidfd_open(child)
        try:
            burning(child)
            parent.send_signal(signal_number)
            ended, _, _ = select.select([seen], [], [], 120.0)
            if not ended:
                os.kill(child, signal.SIGKILL)
        finally:
            os.close(seen)
    return parent.returncode, bool(ended)


def burning(pid: int) -> None:
    """Wait until a child computes: it has used more CPU time than its start takes."""
    while cpu_of(pid) < 2.0:
        os.sched_yield()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_child_outlives_its_parent(number: int) -> None:
    returncode, child_ended = interrupted(number)
    assert returncode != 0
    assert child_ended
