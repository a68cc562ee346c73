"""How many machines of a type a project may still start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.model.machine import MachineOffer

__all__ = ["machines_left"]

#: Family of machine types → the quota of its vCPUs. Other families use CPUS.
CPU_QUOTAS = {"n2": "N2_CPUS", "n2d": "N2D_CPUS", "c2": "C2_CPUS", "c2d": "C2D_CPUS", "c3": "C3_CPUS"}


def machines_left(region: Mapping[str, Any], offer: MachineOffer, public: bool) -> int | None:
    """Return how many further machines of an offer the quotas of a region allow; None if Google does not state them.

    It leaves them out while it cannot read them itself (`quotaStatusWarning`).
    """
    free = {one["metric"]: one["limit"] - one["usage"] for one in region.get("quotas", ())}
    limits = {one["metric"]: one["limit"] for one in region.get("quotas", ())}
    cpus = CPU_QUOTAS.get(offer.machine.name.partition("-")[0], "CPUS")
    if offer.spot and limits.get("PREEMPTIBLE_CPUS", 0) > 0:
        cpus = "PREEMPTIBLE_CPUS"  # Without this quota of its own a spot machine counts as any other.
    each = {"INSTANCES": 1, cpus: offer.machine.vcpus, **({"IN_USE_ADDRESSES": 1} if public else {})}
    left = [int(free[metric] // need) for metric, need in each.items() if metric in free]
    return max(0, min(left)) if left else None
