"""Request to a price API and its answer, in the catalog's own terms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tradewind.catalog.refreshed import ListedMachinePrice
from tradewind.catalog.tables import LISTED_USD_PER_GB_MAX, USD_PER_HOUR_MAX
from tradewind.errors import PriceApiError
from tradewind.model.machine import MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import CountedBy, EgressPrice, EgressRule, ListedUnit
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region, RegionInfo

__all__ = ["UNITS", "Prices", "Tier", "Wanted", "paid_tiers"]

Tier = tuple[float, float]
"""Volume from which a price applies, and the price [USD], as in the price list."""

UNITS: Mapping[str, ListedUnit] = {"GB": "GB", "1 GB": "GB", "GBy": "GB", "GiB": "GiB", "1 GiB": "GiB", "GiBy": "GiB"}
"""Units of egress as AWS, Azure and Google state them. A GB is 10^9 bytes unless defined otherwise."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Figures to request from one provider."""

    places: Mapping[Region, RegionInfo]
    """The provider's regions to request."""
    known: Mapping[Region, RegionInfo]
    """All of the provider's regions, as destinations of egress."""
    machines: Mapping[str, MachineType]
    """By name."""
    named: bool
    """True if the user named regions; only then are lists of hundreds of MB per region loaded."""
    date: str
    """Today."""

    def place(self, name: object) -> RegionInfo | None:
        """Return the location of a requested region by its name; None if it was not requested."""
        return next((place for region, place in self.places.items() if region.name == name), None)


@dataclass(slots=True)
class Prices:
    """Answer of a provider. The `add_…` methods refuse impossible prices."""

    rules: list[EgressRule] = field(default_factory=list)
    """Prices, each with one region as its source; specific prices before general ones."""
    machines: list[ListedMachinePrice] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes for the user about figures that were not requested or not understood."""

    def add_rule(
        self,
        src: Region,
        dst: str,
        tiers: Iterable[Tier],
        origin: Origin,
        *,
        unit: str,
        counted: CountedBy = "account",
    ) -> None:
        """Add an egress price, in the unit that the price API states (`UNITS`). Raises PriceApiError."""
        listed = UNITS.get(unit)
        if listed is None:
            raise PriceApiError(f"{src}: egress to {dst} is priced per {unit}, not per {' or '.join(UNITS)}")
        paid = paid_tiers(tiers)
        for start, usd in paid:
            if not 0 <= usd <= LISTED_USD_PER_GB_MAX or not math.isfinite(start):
                raise PriceApiError(f"{src}: {usd} USD per {unit} to {dst} is not a price")
        if paid:
            self.rules.append(EgressRule(str(src), dst, EgressPrice.listed(paid, origin, listed, counted)))

    def add_machine(self, region: Region, name: str, usd_per_hour: float, origin: Origin, *, spot: bool) -> None:
        """Add a machine price. Raises PriceApiError."""
        if not 0 < usd_per_hour <= USD_PER_HOUR_MAX:
            raise PriceApiError(f"{region}: {usd_per_hour} USD per hour for {name} is not a price")
        self.machines.append(ListedMachinePrice(region, name, spot, usd_per_hour, origin))

    def note_missing(self, wanted: Wanted) -> None:
        """Add a note about requested regions without a price."""
        said = {rule.src for rule in self.rules} | {str(machine.region) for machine in self.machines}
        missing = sorted(str(region) for region in wanted.places if str(region) not in said)
        if missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            self.notes.append(f"no price was found for {shown}; the existing figures stay")


def paid_tiers(tiers: Iterable[Tier]) -> tuple[Tier, ...]:
    """Return the tiers in order, without a free tier at the start.

    A month's free volume belongs to the account, not to a route, and may already be used up: no plan may count on it.
    """
    ordered = sorted(dict(tiers).items())
    if len(ordered) > 1 and ordered[0][1] == 0:
        ordered = [(0.0, ordered[1][1]), *ordered[2:]]
    return tuple(tier for i, tier in enumerate(ordered) if i == 0 or tier[1] != ordered[i - 1][1])
