"""The catalog of a state folder: read, imported and refreshed."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.catalog import tables
from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.user_files import Imported, import_table
from tradewind.errors import PriceApiRefused, PriceApiUnavailable, TradewindError, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.origin import Origin
from tradewind.model.records import dataclass
from tradewind.model.region import Region, parse_region

if TYPE_CHECKING:
    from tradewind.catalog.refresh.run import RefreshOutcome

__all__ = ["Imported", "ProviderPrices", "UserCatalog"]


@dataclass(frozen=True, slots=True)
class ProviderPrices:
    """Result of `refresh` for one provider.

    `missing_key` is the variable of the missing key, if the provider was left out because it was not named.
    `unreachable`: its price API could not be reached.
    """

    outcome: RefreshOutcome
    missing_key: str | None
    unreachable: bool

    @property
    def failure(self) -> TradewindError | None:
        """The error, unless the provider was merely left out."""
        return None if self.missing_key is not None else self.outcome.error


class UserCatalog:
    """The packaged catalog with the tables of a state folder; `folder` has these."""

    def __init__(self, state_dir: str | None) -> None:
        self.folder: Path = catalog_folder(state_dir)

    def load(self) -> Catalog:
        """Return the catalog as planning uses it. Raises ConfigError."""
        return load_catalog(self.folder)

    def regions_named(self, catalog: Catalog, names: Sequence[str]) -> list[Region]:
        """Return regions by name. Raises UsageError for one that the catalog does not know, or the same one twice."""
        regions = [_known(catalog, catalog.region_named(name)) for name in names]
        if len(set(regions)) < len(regions):
            raise UsageError("both regions are the same", hint="name one region to see its machines and prices")
        return regions

    def table_names(self) -> list[str]:
        """Return the file names of the user's own tables."""
        return sorted(path.name for path in self.folder.glob("*.csv"))

    def packaged_price_dates(self) -> list[str]:
        """Return the dates of the packaged list prices, the oldest first."""
        packaged = load_catalog()
        offers = [offer.origin for of in packaged.offers.values() for offer in of]
        origins = [*offers, *(rule.price.origin for rule in packaged.prices.rules)]
        return sorted({origin.date for origin in origins if origin.date})

    def age_days(self, origin: Origin) -> int | None:
        """Return the age of a figure in whole days, by the clock of imports; None if it has no date."""
        return max(0, (_today() - datetime.date.fromisoformat(origin.date)).days) if origin.date else None

    def import_table(
        self, path: str | Path, *, date: str | None = None, source: str = "", new_regions: bool = False
    ) -> Imported:
        """Import a table; see `import_table`. Without a date its figures are of today.

        Raises UsageError for an invalid or future date; ConfigError.
        """
        date = date or _today().isoformat()
        _require_date(date)
        return import_table(Path(path), self.folder, date=date, source=source, new_regions=new_regions)

    def refresh(
        self,
        providers: Sequence[str],
        regions: Iterable[str],
        *,
        on_progress: Callable[[str, int], None],
        on_outcome: Callable[[ProviderPrices], None],
    ) -> list[ProviderPrices]:
        """Request the clouds' prices and store them; by default those of all providers.

        `on_progress` gets the name and the size in bytes of each list as it arrives, `on_outcome` each provider as soon
        as it is done. A missing key for Google is an error only if Google was named. Raises UsageError.
        """
        from tradewind.catalog.refresh import fetch, run

        named = [parse_region(text) for text in regions]
        by_name = set(providers) | {region.provider for region in named}
        fetcher = fetch.Fetcher(progress=on_progress)
        asked = run.Refresh(self.load(), self.folder, _today().isoformat(), fetcher, endpoints=run.ENDPOINTS)
        done: list[ProviderPrices] = []

        def report(outcome: RefreshOutcome) -> None:
            done.append(_judged(outcome, by_name))
            on_outcome(done[-1])

        run.refresh(asked, providers, named, report)
        return done


def _judged(outcome: RefreshOutcome, by_name: set[str]) -> ProviderPrices:
    from tradewind.catalog.refresh.gcp import KEY_VARIABLE

    error = outcome.error
    wants_key = isinstance(error, PriceApiRefused) and KEY_VARIABLE in (error.hint or "")
    missing = KEY_VARIABLE if wants_key and not by_name else None
    return ProviderPrices(outcome, missing, isinstance(error, PriceApiUnavailable))


def _known(catalog: Catalog, region: Region) -> Region:
    if region not in catalog.places and region not in catalog.grid.regions():
        near = catalog.nearest_names(region)
        hint = f"did you mean {' or '.join(near)}?" if near else "`tradewind catalog show` lists all regions"
        raise UsageError(f"unknown region {region}", hint=hint)
    return region


def _require_date(text: str) -> None:
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a date", hint="for example 2025-03-01") from None
    if not tables.date_has_come(date):
        raise UsageError(f"--date {text} is in the future", hint="it is the date of the figures")


def _today() -> datetime.date:
    """Return the date in UTC, by the clock of imports."""
    return tables.present().date()
