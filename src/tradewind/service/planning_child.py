"""`python -m tradewind.service.planning_child`: plans one transfer for `/v1/frontier` and `/v1/plan`.

A plan computes for seconds. In a process of its own, with a lower priority, it does not delay the server's answers, and
it is ended at its time limit. It reads the question as JSON from standard input, and writes the answer as JSON to
standard output.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tradewind.errors import TradewindError, UsageError
from tradewind.service.limits import PLAN_S_MAX
from tradewind.service.problems import ApiProblem

__all__ = ["planned"]

_LOG = logging.getLogger("tradewind.service")
#: Priority of the process, below that of the server.
NICE = 10
#: Significant digits of a point of the frontier.
DIGITS = 9


def planned(state_dir: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the frontier of a question, or with `min_throughput_gbps` in it the plan of that rate.

    The catalog is that of the engine's state folder. Raises ApiProblem: 422 or 409 with the planner's reason, 503 if it
    takes too long.
    """
    command = [sys.executable, "-m", "tradewind.service.planning_child", state_dir]
    try:
        done = subprocess.run(
            command, input=json.dumps(dict(question)), capture_output=True, text=True, timeout=PLAN_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ApiProblem(
            503, f"the plan was not made within {PLAN_S_MAX:g} s", hint="try again, or allow fewer machines"
        ) from None
    if done.returncode != 0:
        _LOG.error("the planner ended with exit code %d: %s", done.returncode, done.stderr.strip().rpartition("\n")[2])
        raise ApiProblem(503, "the planner ended without an answer", headers={"Retry-After": "5"})
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise ApiProblem(answer["status"], answer["error"], hint=answer["hint"])
    return answer


def main() -> int:
    """Answer one question."""
    os.nice(NICE)
    try:
        answer = _answer(sys.argv[1], json.load(sys.stdin))
    except TradewindError as error:
        status = 422 if isinstance(error, UsageError) else 409
        answer = {"error": str(error), "hint": error.hint, "status": status}
    print(json.dumps(answer))
    return 0


def _answer(state_dir: str, question: dict[str, Any]) -> dict[str, Any]:
    from tradewind.engine.engine import Engine

    engine = Engine(state_dir=state_dir)
    if "min_throughput_gbps" not in question:
        found = engine.frontier(**question)
        # Ends of neighbouring pieces differ by rounding.
        ends = sorted({tuple(float(f"{value:.{DIGITS}g}") for value in (rate, usd)) for usd, rate in found.points})
        points = [{"rate_gbps": rate_gbps, "usd": usd} for rate_gbps, usd in ends]
        return {"points": points, "proven": found.proven}
    plan = engine.plan(**question)
    return {
        "rate_gbps": plan.throughput_gbps,
        "time_s": plan.time_s,
        "usd": plan.cost.total_usd,
        "egress_usd": plan.cost.egress_usd,
        "routes": [{"regions": [str(one) for one in each.regions], "share": each.share} for each in plan.routes],
        "machines": [
            {"region": str(each.region), "type": each.offer.name, "count": each.count} for each in plan.machines
        ],
        "explanation": plan.explain(),
        "map_svg": plan.map().svg,
    }


if __name__ == "__main__":
    sys.exit(main())
