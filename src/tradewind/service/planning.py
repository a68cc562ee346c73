"""Plans for `/v1/frontier` and `/v1/plan`, each made by a process of its own, see `planning_child`.

Few are made at a time, for one tenant fewer, and few requests wait: each that waits has one of the threads that answer
all requests, so one tenant could stop the whole server.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tradewind.service.limits import (
    PLAN_S_MAX,
    PLANS_AT_ONCE_MAX,
    PLANS_AT_ONCE_PER_TENANT,
    PLANS_WAIT_S,
    PLANS_WAITING_MAX,
    PLANS_WAITING_PER_TENANT,
)
from tradewind.service.problems import ApiProblem

__all__ = ["Planning"]

_LOG = logging.getLogger("tradewind.service")


class Planning:
    """The plans of one server. The catalog is that of the engine's state folder. Close it."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir, self._is_closed = state_dir, False
        self._changed = threading.Condition()
        self._planned: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._processes: set[subprocess.Popen[str]] = set()

    def plan(self, tenant: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the frontier of a question, or with `min_throughput_gbps` in it the plan of that rate.

        Raises ApiProblem: 422 or 409 with the planner's reason, 429 if others plan, 503 if it takes too long.
        """
        with self._place(tenant):
            return self._answer(question)

    def close(self) -> None:
        """End all plans: their requests are answered 503."""
        with self._changed:
            self._is_closed = True
            for process in self._processes:
                process.kill()
            self._changed.notify_all()

    @contextmanager
    def _place(self, tenant: str) -> Iterator[None]:
        """Wait for a place. Raises ApiProblem 429."""
        with self._changed:
            is_full = self._waiting.total() >= PLANS_WAITING_MAX or self._waiting[tenant] >= PLANS_WAITING_PER_TENANT
            if not self._is_free(tenant) and (is_full or not self._waited(tenant)):
                raise ApiProblem(429, "other transfers are being planned", headers={"Retry-After": "2"})
            self._planned[tenant] += 1
        try:
            yield
        finally:
            with self._changed:
                self._planned[tenant] -= 1
                self._planned += Counter()  # Without the tenants that have none.
                self._changed.notify_all()

    def _is_free(self, tenant: str) -> bool:
        most = self._planned.total() < PLANS_AT_ONCE_MAX and self._planned[tenant] < PLANS_AT_ONCE_PER_TENANT
        return self._is_closed or most

    def _waited(self, tenant: str) -> bool:
        self._waiting[tenant] += 1
        try:
            return self._changed.wait_for(lambda: self._is_free(tenant), PLANS_WAIT_S)
        finally:
            self._waiting[tenant] -= 1
            self._waiting += Counter()

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        life, ours = os.pipe()
        try:
            with open(ours, "wb"):  # The child ends when it closes, also if this server is killed.
                return self._answer_of_child(question, life)
        finally:
            os.close(life)

    def _answer_of_child(self, question: Mapping[str, Any], life: int) -> dict[str, Any]:
        command = [sys.executable, "-m", "tradewind.service.planning_child", self._state_dir, str(life)]
        pipe = subprocess.PIPE
        with self._changed:
            if self._is_closed:
                raise _unanswered()
            # The stacks of a thread for each processor would count for its maximum memory.
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, pass_fds=(life,), env=env
            )
            self._processes.add(process)
        try:
            with process:
                try:
                    said, errors = process.communicate(json.dumps(dict(question)), PLAN_S_MAX)
                except BaseException:
                    process.kill()
                    raise
        except subprocess.TimeoutExpired:
            raise ApiProblem(
                503, f"the plan was not made within {PLAN_S_MAX:g} s", hint="try again, or allow fewer machines"
            ) from None
        finally:
            with self._changed:
                self._processes.discard(process)
        if process.returncode != 0:
            last = errors.strip().rpartition("\n")[2]
            _LOG.error("the planner ended with exit code %d: %s", process.returncode, last)
            raise _unanswered()
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise ApiProblem(answer["status"], answer["error"], hint=answer["hint"])
        return answer


def _unanswered() -> ApiProblem:
    return ApiProblem(503, "the planner has ended without an answer", headers={"Retry-After": "5"})
