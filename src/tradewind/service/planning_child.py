"""`python -m tradewind.service.planning_child STATE FD`: plans one transfer for `/v1/frontier` and `/v1/plan`.

A plan computes for seconds. In a process of its own, with a lower priority, it does not delay the server's answers, and
it is ended at its time limit, and when the server's end of the pipe `FD` closes. Its memory is limited. It reads the
question as JSON from standard input, and writes the answer as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from tradewind.errors import TradewindError, UsageError, name_options
from tradewind.model.life_pipe import end_when_closed
from tradewind.service.limits import PLAN_BYTES_MAX

__all__ = ["main"]

#: Priority of the process, below that of the server.
NICE = 10
#: Significant digits of a point of the frontier.
DIGITS = 9


def main() -> int:
    """Answer one question."""
    name_options()
    end_when_closed(int(sys.argv[2]))
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (PLAN_BYTES_MAX, PLAN_BYTES_MAX))
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
