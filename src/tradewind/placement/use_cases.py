"""Problems of the four use cases of CloudPilot (section 3), from a seed and round trips between regions.

A host is at a random region, less than 40 ms from it (section 7.1). The paper does not give a host's round trips to
other regions. Here every path of a host leads through its region. So a round trip between hosts is the sum of three
parts: from the source to its region, between the two regions, and from the other region to the destination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np

from tradewind.errors import ConfigError, UsageError
from tradewind.model.records import dataclass, field
from tradewind.placement.problem import FLOWS_MAX, FloatArray, Flow, PlacementProblem, ProxyRegion

__all__ = ["DEFAULT_SIZE_BYTES", "USE_CASES", "Places", "UseCase", "UseCaseSettings", "make_problem"]

UseCase = Literal["one-to-many", "many-to-many", "many-one-to-one", "localized-one-to-many"]
USE_CASES: tuple[str, ...] = get_args(UseCase)

DEFAULT_SIZE_BYTES = 2e9
ACCESS_MS_MAX = 40.0
"""A host is nearer than this to its region (section 7.1)."""
CONTINENTS = ("asia", "europe", "north-america")
"""Each has one source of the localized use case (section 7.2, Use cases)."""
NEARNESS_SHARES = (0.90, 0.07, 0.03)
"""Shares of the destinations that use the nearest, the second and the farthest source (section 7.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Regions with the round trips between them [ms], and their continents as far as they are known."""

    names: tuple[str, ...]
    rtt_ms: FloatArray
    continents: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UseCaseSettings:
    """Sizes, rates and prices of a generated problem. The defaults are the paper's (section 7.1)."""

    size_bytes: float = DEFAULT_SIZE_BYTES
    last_mile_mbps: float = 1000.0
    """Rate of each end of a flow, but not of a source that serves many destinations: nothing limits those."""
    capacity_mbps: float = 2000.0
    setup_cents: float = 50.0
    egress_cents_per_gb: float = 8.0
    budget_cents: float | None = None
    """None for `BUDGET_CENTS_PER_FLOW` for each flow."""
    slow_start: bool = False
    source: str | None = None
    """Region of the source of one-to-many; None for a random one."""


BUDGET_CENTS_PER_FLOW = 50.0


@dataclass(frozen=True, slots=True, eq=False)
class _Host:
    region: int
    access_ms: float
    """Round trip between the host and its region."""
    last_mile_mbps: float


@dataclass(frozen=True, slots=True, eq=False)
class _World:
    """The hosts and regions that the generators of flows draw from."""

    places: Places
    settings: UseCaseSettings
    rng: np.random.Generator

    def host(self, *, region: int | None = None, serves_many: bool = False) -> _Host:
        """Return a new host, at a random region if none is given."""
        at = int(self.rng.integers(len(self.places.names))) if region is None else region
        last_mile_mbps = math.inf if serves_many else self.settings.last_mile_mbps
        return _Host(at, float(self.rng.uniform(0, ACCESS_MS_MAX)), last_mile_mbps)

    def rtt_ms(self, src: _Host, dst: _Host) -> float:
        """Return the round trip between two hosts."""
        return src.access_ms + float(self.places.rtt_ms[src.region, dst.region]) + dst.access_ms


def make_problem(
    case: str, flows: int, seed: int, places: Places, settings: UseCaseSettings | None = None
) -> PlacementProblem:
    """Return the problem of a use case. The same arguments give the same problem.

    Except for many-to-many, the flows of a smaller problem are the first flows of a larger one with the same seed.

    Raises:
        UsageError: unknown use case, region or number of flows.
        ConfigError: the localized use case, if no region is known to be in one of its continents.
    """
    if case not in _MAKERS:
        raise UsageError(f"unknown use case {case!r}", hint=f"known: {', '.join(USE_CASES)}")
    if not 1 <= flows <= FLOWS_MAX:
        raise UsageError(f"the number of flows is from 1 to {FLOWS_MAX}, not {flows}")
    if seed < 0:
        raise UsageError(f"a seed is 0 or more, not {seed}")
    settings = settings or UseCaseSettings()
    world = _World(places, settings, np.random.default_rng(seed))
    ends = _MAKERS[case](world, flows)
    regions = tuple(
        ProxyRegion(name, settings.capacity_mbps, settings.setup_cents, settings.egress_cents_per_gb, flows)
        for name in places.names
    )
    budget_cents = BUDGET_CENTS_PER_FLOW * flows if settings.budget_cents is None else settings.budget_cents
    hosts = dict.fromkeys(host for pair in ends for host in pair)
    names = {host: f"host{number}" for number, host in enumerate(hosts, 1)}
    made = tuple(_flow(world, f"f{number}", pair, names) for number, pair in enumerate(ends))
    return PlacementProblem(regions, places.rtt_ms, made, budget_cents, slow_start=settings.slow_start)


_Ends = list[tuple[_Host, _Host]]


def _one_to_many(world: _World, flows: int) -> _Ends:
    """One source sends to each destination (Fig. 2a)."""
    wanted = world.settings.source
    if wanted is not None and wanted not in world.places.names:
        raise UsageError(f"unknown region {wanted!r}", hint=f"known: {', '.join(world.places.names)}")
    region = None if wanted is None else world.places.names.index(wanted)
    source = world.host(region=region, serves_many=True)
    return [(source, world.host()) for _ in range(flows)]


def _many_to_many(world: _World, flows: int) -> _Ends:
    """Hosts send to each other (Fig. 2b): the smallest full mesh with enough flows, less random ones beyond `flows`."""
    count = next(count for count in range(2, flows + 3) if count * (count - 1) >= flows)
    hosts = [world.host() for _ in range(count)]
    pairs = [(src, dst) for src in hosts for dst in hosts if src is not dst]
    kept = np.sort(world.rng.permutation(len(pairs))[:flows])
    return [pairs[number] for number in kept.tolist()]


def _many_one_to_one(world: _World, flows: int) -> _Ends:
    """Each source sends to one destination (Fig. 2c)."""
    return [(world.host(), world.host()) for _ in range(flows)]


def _localized_one_to_many(world: _World, flows: int) -> _Ends:
    """Sources in three continents send to destinations that are mostly near to them (Fig. 2d)."""
    sources = [world.host(region=_region_in(world, continent), serves_many=True) for continent in CONTINENTS]
    ends = []
    for _ in range(flows):
        dst = world.host()
        nearest_first = sorted(sources, key=lambda src: world.rtt_ms(src, dst))
        ends.append((nearest_first[int(world.rng.choice(len(sources), p=NEARNESS_SHARES))], dst))
    return ends


def _region_in(world: _World, continent: str) -> int:
    """Return the number of a random region of a continent."""
    names, continents = world.places.names, world.places.continents
    inside = [number for number, name in enumerate(names) if continents.get(name) == continent]
    if not inside:
        raise ConfigError(
            f"localized-one-to-many needs a source in {continent}, and no region is known to be there",
            hint="add a column continent (of src) with asia, europe and north-america to the round trips",
        )
    return inside[int(world.rng.integers(len(inside)))]


_MAKERS: Mapping[str, Callable[[_World, int], _Ends]] = {
    "one-to-many": _one_to_many,
    "many-to-many": _many_to_many,
    "many-one-to-one": _many_one_to_one,
    "localized-one-to-many": _localized_one_to_many,
}


def _flow(world: _World, name: str, ends: tuple[_Host, _Host], host_names: Mapping[_Host, str]) -> Flow:
    (src, dst), places = ends, world.places
    return Flow(
        name,
        world.settings.size_bytes,
        world.rtt_ms(src, dst),
        src.access_ms + places.rtt_ms[src.region],
        places.rtt_ms[:, dst.region] + dst.access_ms,
        src.last_mile_mbps,
        dst.last_mile_mbps,
        places.names[src.region],
        places.names[dst.region],
        host_names[src],
        host_names[dst],
    )
