"""How many requests may plan a transfer at a time, and the end of the processes that plan."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from tests.service.server import WAIT_S
from tradewind.service.limits import PLAN_BYTES_MAX, PLANS_WAITING_MAX, PLANS_WAITING_PER_TENANT
from tradewind.service.planning import Planning
from tradewind.service.problems import ApiProblem

T = TypeVar("T")
QUESTION = {"source": "aws:us-east-1", "destination": "gcp:europe-west4", "volume_gb": 50.0, "max_vms": 8}
#: A question whose answer takes longer than a test waits.
LONG = {**QUESTION, "max_vms": 64}


def test_one_tenant_has_neither_all_places_nor_all_threads(tmp_path: Path) -> None:
    planning = Planning(str(tmp_path))
    with ThreadPoolExecutor(PLANS_WAITING_PER_TENANT) as threads:
        with planning._place("a"):
            waiting = [threads.submit(planning.plan, "a", QUESTION) for _ in range(PLANS_WAITING_PER_TENANT)]
            with planning._changed:
                while planning._waiting["a"] < PLANS_WAITING_PER_TENANT:
                    planning._changed.wait(0.01)
            with pytest.raises(ApiProblem, match="other transfers"):
                planning.plan("a", QUESTION)
            with planning._place("b"):
                pass
            planning.close()
        for each in waiting:
            with pytest.raises(ApiProblem, match="without an answer"):
                each.result()


def test_few_requests_of_all_tenants_wait(tmp_path: Path) -> None:
    planning = Planning(str(tmp_path))
    with ThreadPoolExecutor(PLANS_WAITING_MAX) as threads, ExitStack() as places:
        for tenant in ("a", "b"):
            places.enter_context(planning._place(tenant))
        waiting = [threads.submit(planning.plan, f"t{number}", QUESTION) for number in range(PLANS_WAITING_MAX)]
        with planning._changed:
            while planning._waiting.total() < PLANS_WAITING_MAX:
                planning._changed.wait(0.01)
        with pytest.raises(ApiProblem, match="other transfers"):
            planning.plan("c", QUESTION)
        planning.close()
        assert all(isinstance(each.exception(), ApiProblem) for each in waiting)


def test_a_server_that_ends_does_not_wait_for_a_plan(tmp_path: Path) -> None:
    planning = Planning(str(tmp_path))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(planning.plan, "a", QUESTION)
        begun = threading.Event()
        while not planning._processes and not asked.done():
            begun.wait(0.01)
        planning.close()
        with pytest.raises(ApiProblem, match="without an answer"):
            asked.result()


def test_a_killed_server_leaves_no_plan_behind(tmp_path: Path) -> None:
    plans = f"from tradewind.service.planning import Planning\nPlanning({str(tmp_path)!r}).plan('a', {LONG!r})"
    server = subprocess.Popen([sys.executable, "-c", plans], stderr=subprocess.DEVNULL)
    try:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        found = _eventually(lambda: [Path(f"/proc/{pid}") for pid in children.read_text().split()])
        _eventually(lambda: all(b"planning_child" in (one / "cmdline").read_bytes() for one in found))
        _eventually(lambda: all(f" {PLAN_BYTES_MAX} " in (one / "limits").read_text() for one in found))
    finally:
        server.kill()
        server.wait()
    assert _eventually(lambda: not any(one.exists() and _is_running(one) for one in found))


def _is_running(process: Path) -> bool:
    return "\nState:\tZ" not in (process / "status").read_text()


def _eventually(get: Callable[[], T]) -> T:
    deadline_s = time.monotonic() + WAIT_S
    while not (found := get()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return found
