"""Placement problems and flows files of use cases, from a table of round trips or from the catalog."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.tables import RTT_MS_MAX, read_rows
from tradewind.engine.use_case_flows import write_flows
from tradewind.errors import ConfigError, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.records import dataclass, field
from tradewind.placement.problem import REGIONS_MAX, document_of
from tradewind.placement.use_cases import DEFAULT_SIZE_BYTES, Places, UseCaseSettings, make_problem

__all__ = ["read_places", "use_case_document"]

CENTS_PER_USD = 100.0
RTT_HINT = "the columns are src, dst, rtt_ms, and continent (of src) if the use case needs it"


def use_case_document(
    case: str,
    flows: int,
    seed: int,
    *,
    rtt: Path | None = None,
    provider: str = "gcp",
    state_dir: str | None = None,
    size_bytes: float | None = None,
    budget_usd: float | None = None,
    slow_start: bool = False,
    flows_file: Path | None = None,
) -> dict[str, Any]:
    """Return the problem document of a use case; arguments and errors are those of `Engine.use_case`."""
    if flows_file is not None and rtt is not None:
        raise UsageError("a flows file has the round trips of the catalog", hint="leave out the table of round trips")
    catalog = load_catalog(catalog_folder(state_dir))
    places = _catalog_places(provider, catalog) if rtt is None else read_places(rtt)
    if size_bytes is not None and size_bytes <= 0:
        raise UsageError("a flow has at least one byte")
    settings = UseCaseSettings(
        size_bytes=DEFAULT_SIZE_BYTES if size_bytes is None else size_bytes,
        budget_cents=None if budget_usd is None else budget_usd * CENTS_PER_USD,
        slow_start=slow_start,
    )
    problem = make_problem(case, flows, seed, places, settings)
    return document_of(problem) if flows_file is None else write_flows(problem, catalog, flows_file)


@dataclass(frozen=True, slots=True)
class _Found:
    """Round trips by pair of names, and continents by name."""

    rtt_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    continents: dict[str, str] = field(default_factory=dict)


def read_places(path: Path) -> Places:
    """Return the regions of a CSV file: src, dst, rtt_ms for each ordered pair, and perhaps continent (of src).

    A region's round trip to itself may be missing; it is 0. Raises ConfigError.
    """
    found = _Found()
    for row in read_rows(path, (("src",), ("dst",), ("rtt_ms",))):
        src, dst = row.fields[row.column(("src",))], row.fields[row.column(("dst",))]
        found.rtt_ms[src, dst] = row.number("rtt_ms", low=0.0, high=RTT_MS_MAX)
        if row.has("continent"):
            found.continents[src] = row.fields["continent"]
    return _places(found, str(path))


def _catalog_places(provider: str, catalog: Catalog) -> Places:
    """Return a provider's regions, with the round trips of the catalog. Raises UsageError if it knows none."""
    found = _Found()
    for (src, dst), link in catalog.grid.links.items():
        if src.provider == dst.provider == provider and link.rtt_ms is not None:
            found.rtt_ms[str(src), str(dst)] = link.rtt_ms
    if not found.rtt_ms:
        providers = sorted({region.provider for region in catalog.places})
        raise UsageError(
            f"the catalog has no round trips for {provider!r}", hint=f"providers: {', '.join(providers)}; or give --rtt"
        )
    found.continents.update({str(region): place.continent for region, place in catalog.places.items()})
    return _places(found, f"the catalog's regions of {provider}")


def _places(found: _Found, source: str) -> Places:
    names = sorted({name for pair in found.rtt_ms for name in pair})
    if not names:
        raise ConfigError(f"{source}: no round trips", hint=RTT_HINT)
    if len(names) > REGIONS_MAX:
        raise ConfigError(f"{source}: {len(names)} regions, at most {REGIONS_MAX} are possible")
    if missing := next(_missing(found, names), None):
        raise ConfigError(f"{source}: no round trip from {missing[0]} to {missing[1]}", hint=RTT_HINT)
    rtt_ms = [[found.rtt_ms.get((src, dst), 0.0) for dst in names] for src in names]
    return Places(tuple(names), np.array(rtt_ms), found.continents)


def _missing(found: _Found, names: list[str]) -> Iterator[tuple[str, str]]:
    return (pair for pair in itertools.permutations(names, 2) if pair not in found.rtt_ms)
