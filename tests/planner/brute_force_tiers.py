"""Find the best plan with volume tiers by trying all machines and, for each billing count, all its tiers.

Shares no code with the planner. For fixed machines and tiers each goal is one linear program over shares of the rate,
in which the volume of each count stays inside its tier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import highspy

from tests.planner.brute_force import Machines, World, _flows, machines_usd_per_s
from tests.planner.brute_force_trees import TreeWorld, shares
from tradewind.model.price import PriceTier


def cheapest_usd(world: World | TreeWorld, rate_min_gbps: float) -> float:
    """Return the minimum cost at a minimum rate; infinite if the rate is infeasible."""
    best = math.inf
    for highs, inverse_rate, usd in _models(world):
        highs.addConstr(inverse_rate <= 1 / rate_min_gbps)
        highs.minimize(usd)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = min(best, highs.getObjectiveValue())
    return best


def fastest_gbps(world: World | TreeWorld, ceiling_usd: float) -> float:
    """Return the highest rate for at most ``ceiling_usd``; zero if no plan is that cheap."""
    best = 0.0
    for highs, inverse_rate, usd in _models(world):
        highs.addConstr(usd <= ceiling_usd)
        highs.minimize(inverse_rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = max(best, 1 / highs.getObjectiveValue())
    return best


def _models(world: World | TreeWorld) -> Iterator[tuple]:  # type: ignore[type-arg]
    """Yield models with the inverse of the rate and the cost, one per set of machines and choice of tiers."""
    trees = world.trees() if isinstance(world, TreeWorld) else []
    boot_s = 0.0 if isinstance(world, TreeWorld) else world.boot_s
    for machines in world.machine_sets():
        counts = _counts(world, machines)
        for numbers in itertools.product(*(range(len(tiers)) for _, tiers in counts)):
            if isinstance(world, TreeWorld):
                highs, part, inverse_rate = shares(world, trees, machines)
            else:
                model = _flows(world, machines, scaled=True)
                if model is None:
                    break
                highs, part, inverse_rate, _ = model
            usd = (boot_s + 8 * world.volume_gb * inverse_rate) * machines_usd_per_s(machines)
            for ((_, tiers), pairs), number in zip(counts.items(), numbers, strict=True):
                volume = world.volume_gb * sum(part[pair] for pair in pairs if pair in part)
                if isinstance(volume, float):
                    continue
                starts = [tier.from_gb for tier in tiers]
                before = sum((starts[n + 1] - starts[n]) * tiers[n].usd_per_gb for n in range(number))
                usd = usd + before + tiers[number].usd_per_gb * (volume - starts[number])
                if number:
                    highs.addConstr(volume >= starts[number])
                if number + 1 < len(tiers):
                    highs.addConstr(volume <= starts[number + 1])
            yield highs, inverse_rate, usd


def _counts(world: World | TreeWorld, machines: Machines) -> dict[tuple[str, tuple[PriceTier, ...]], list]:  # type: ignore[type-arg]
    """Return the links between machines by provider and price. Each group is one billing count."""
    counts: dict[tuple[str, tuple[PriceTier, ...]], list] = {}  # type: ignore[type-arg]
    for src, dst in world.catalog.grid.links:
        price = world.catalog.egress(src, dst)
        assert price is not None
        if machines[src][1] and machines[dst][1]:
            counts.setdefault((src.provider, price.tiers), []).append((src, dst))
    return counts
