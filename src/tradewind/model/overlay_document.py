"""Plans as JSON documents: the answer format of problem files."""

from __future__ import annotations

from typing import Any

from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import MulticastOverlay, UnicastOverlay

__all__ = ["goal_document", "plan_document"]


def plan_document(plan: UnicastOverlay | MulticastOverlay) -> dict[str, Any]:
    """A plan; figures in full, so that sums hold. With several destinations it has trees instead of routes."""
    ends: dict[str, Any]
    if isinstance(plan, MulticastOverlay):
        ends = {"destinations": [str(region) for region in plan.destinations]}
        ways = {
            "trees": [
                {"hops": [[str(src), str(dst)] for src, dst in t.hops], "gbps": t.gbps, "share": t.share}
                for t in plan.trees
            ]
        }
    else:
        ends = {"destination": str(plan.destination)}
        ways = {
            "routes": [
                {"regions": [str(region) for region in r.regions], "gbps": r.gbps, "share": r.share}
                for r in plan.routes
            ]
        }
    return {
        "status": "optimal" if plan.optimal else "feasible",
        "gap": plan.gap,
        "source": str(plan.source),
        **ends,
        "volume_gb": plan.volume_gb,
        "goal": goal_document(plan.goal),
        "throughput_gbps": plan.throughput_gbps,
        "time_s": plan.time_s,
        "boot_s": plan.boot_s,
        "solve_s": round(plan.solve_s, 4),
        "cost_usd": {
            "egress": plan.cost.egress_usd,
            "vm": plan.cost.machines_usd,
            "requests": plan.cost.requests_usd,
            "total": plan.cost.total_usd,
        },
        "objects": None if plan.objects is None else plan.objects.count,
        "requests": {
            "get": plan.requests.gets,
            "put": plan.requests.puts,
            "list": plan.requests.lists,
            "head": plan.requests.heads,
        },
        "vms": {str(region): count for region, count in plan.machine_counts.items()},
        "machines": [
            {"region": str(m.region), "type": m.offer.name, "count": m.count, "usd_per_hour": m.offer.usd_per_hour}
            for m in plan.machines
        ],
        "edges": [
            {
                "src": str(e.src),
                "dst": str(e.dst),
                "gbps": e.gbps,
                "connections": e.connections,
                "usd_per_gb": e.usd_per_gb,
            }
            for e in plan.edges
        ],
        **ways,
        "binding": list(plan.binding),
    }


def goal_document(goal: Goal) -> dict[str, Any]:
    """A goal as a problem file has it."""
    if isinstance(goal, MinThroughput):
        document: dict[str, Any] = {"min_throughput_gbps": goal.gbps}
        return {**document, "exactly": True} if goal.exactly else document
    if isinstance(goal, MaxCost):
        return {"max_cost_usd": goal.usd}
    if isinstance(goal, Deadline):
        return {"deadline_s": goal.seconds}
    if isinstance(goal, Cheapest):
        return {"cheapest": True}
    return {"fastest": True} if isinstance(goal, Fastest) else {"soonest": True}
