"""One run of `catalog refresh`: request each provider's prices, and store its figures completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tradewind.catalog.refresh import aws, azure, gcp
from tradewind.catalog.refresh.fetch import Fetcher
from tradewind.catalog.refresh.figures import Prices, Wanted
from tradewind.catalog.refreshed import store_refreshed
from tradewind.errors import PriceApiError, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region

__all__ = ["ENDPOINTS", "PROVIDERS", "Endpoints", "Refresh", "RefreshOutcome", "refresh"]

PROVIDERS = ("aws", "azure", "gcp")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the price APIs."""

    aws: str = aws.ENDPOINT
    azure: str = azure.ENDPOINT
    gcp: str = gcp.ENDPOINT


#: Where prices are requested.
ENDPOINTS = Endpoints()


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """Result for one provider: figures stored in a file, or an error and no change."""

    provider: str
    regions: int = 0
    egress_prices: int = 0
    machine_prices: int = 0
    file: Path | None = None
    notes: Sequence[str] = ()
    error: PriceApiError | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Providers and figures to request, and where to store them."""

    catalog: Catalog
    folder: Path
    date: str
    fetcher: Fetcher = field(default_factory=Fetcher)
    endpoints: Endpoints = field(default_factory=Endpoints)


def refresh(
    asked: Refresh,
    providers: Iterable[str],
    regions: Iterable[Region],
    on_outcome: Callable[[RefreshOutcome], None] | None = None,
) -> list[RefreshOutcome]:
    """Request prices from the providers' price APIs, and store each provider's figures completely or not at all.

    Args:
        asked: the present catalog, the figures to request, and where to store them.
        providers: providers to query; none for all, or for those of ``regions``.
        regions: only these; none for all regions of the catalog.
        on_outcome: called with each provider's outcome as soon as it is known.

    Raises:
        UsageError: an unknown provider or region.
        OSError: the user's part of the catalog cannot be written.
    """
    named = frozenset(regions)
    outcomes = []
    for provider in _choose_providers(asked.catalog, frozenset(providers), named):
        outcome = _one(asked, provider, named)
        if on_outcome is not None:
            on_outcome(outcome)
        outcomes.append(outcome)
    return outcomes


def _choose_providers(catalog: Catalog, providers: frozenset[str], regions: frozenset[Region]) -> list[str]:
    for region in sorted(regions):
        if region not in catalog.places or region.provider not in PROVIDERS:
            near = catalog.nearest_names(region)
            raise UsageError(f"unknown region {region}", hint=f"did you mean {' or '.join(near)}?" if near else None)
        if providers and region.provider not in providers:
            raise UsageError(f"{region} is not a region of {' or '.join(sorted(providers))}")
    of_regions = {region.provider for region in regions}
    return [name for name in PROVIDERS if name in (providers or of_regions or PROVIDERS)]


def _one(asked: Refresh, provider: str, named: frozenset[Region]) -> RefreshOutcome:
    known = {region: place for region, place in asked.catalog.places.items() if region.provider == provider}
    places = {region: place for region, place in known.items() if region in named} if named else known
    machines = {o.machine.name: o.machine for o in asked.catalog.offers.get(provider, ())}
    wanted = Wanted(places, known, machines, bool(named), asked.date)
    try:
        prices = _ask(asked, provider, wanted)
        if not prices.rules and not prices.machines:
            raise PriceApiError(f"{provider}: the price API answered, but without any of the requested prices")
    except PriceApiError as error:
        return RefreshOutcome(provider, error=error)
    file = store_refreshed(asked.folder, provider, prices.rules, prices.machines)
    said = {rule.src for rule in prices.rules} | {str(machine.region) for machine in prices.machines}
    return RefreshOutcome(provider, len(said), len(prices.rules), len(prices.machines), file, prices.notes)


def _ask(asked: Refresh, provider: str, wanted: Wanted) -> Prices:
    if provider == "aws":
        return aws.fetch_prices(asked.fetcher, wanted, asked.endpoints.aws)
    if provider == "azure":
        return azure.fetch_prices(asked.fetcher, wanted, asked.endpoints.azure)
    return gcp.fetch_prices(asked.fetcher, wanted, os.environ.get(gcp.KEY_VARIABLE, ""), asked.endpoints.gcp)
