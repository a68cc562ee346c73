"""Price lists of the service: per GB or per hour, in tiers, by link, for a time; and the price by utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from tradewind.errors import MarketError, UsageError
from tradewind.market.margins import Margin
from tradewind.market.money import MICROS_PER_USD
from tradewind.model.document import Document
from tradewind.model.records import dataclass

__all__ = ["ANY", "Tariff", "TariffTier", "load_share", "tariff_for", "utilisation_price"]

Unit = Literal["GB", "hour"]
#: A region in a tariff that stands for all regions.
ANY = "*"
#: Most tiers of a tariff.
TIERS_MAX = 100
#: Up to the first utilisation the price is the lower bound, from the second on the upper bound.
IDLE_UTILISATION = Fraction(1, 4)
FULL_UTILISATION = Fraction(9, 10)


@dataclass(frozen=True, slots=True)
class TariffTier(Document):
    """A price from a monthly quantity on. With an upper bound it rises with the utilisation of the link."""

    from_quantity: int
    """GB or hours, as the tariff's unit."""
    usd_micros_per_unit: int
    """The price on an idle link, and the lower bound."""
    usd_micros_per_unit_max: int | None = None
    """Upper bound: the price under load. None: the price is the same at any utilisation."""

    def usd_micros_at(self, share: Fraction) -> Fraction:
        """Return the price of a unit at a share of the margin, see `load_share`."""
        lower = Fraction(self.usd_micros_per_unit)
        if self.usd_micros_per_unit_max is None:
            return lower
        return lower + share * (self.usd_micros_per_unit_max - lower)


@dataclass(frozen=True)
class Tariff(Document):
    """A price list for some links.

    Raises UsageError for tiers, bounds or dates that are not in order, or a negative price.
    """

    name: str
    unit: Unit
    tiers: tuple[TariffTier, ...]
    src: str = ANY
    """Region where the traffic leaves, or `*`."""
    dst: str = ANY
    valid_from_s: float = 0.0
    """Unix time."""
    valid_until_s: float | None = None
    """Unix time at which the tariff is no longer valid; None for no end."""

    def __post_init__(self) -> None:
        starts = [tier.from_quantity for tier in self.tiers]
        if not 1 <= len(starts) <= TIERS_MAX or starts[0] != 0 or sorted(set(starts)) != starts:
            raise UsageError(f"tariff {self.name}: tiers must rise from 0, and be at most {TIERS_MAX}")
        if self.unit not in ("GB", "hour"):
            raise UsageError(f"tariff {self.name}: the unit is GB or hour, not {self.unit!r}")
        if any(tier.usd_micros_per_unit < 0 for tier in self.tiers):
            raise UsageError(f"tariff {self.name}: a price must not be negative")
        bounds = [(tier.usd_micros_per_unit, tier.usd_micros_per_unit_max) for tier in self.tiers]
        if any(upper is not None and upper < lower for lower, upper in bounds):
            raise UsageError(f"tariff {self.name}: the upper bound of a price is below its lower bound")
        if self.valid_until_s is not None and self.valid_until_s <= self.valid_from_s:
            raise UsageError(f"tariff {self.name}: it ends before it begins")

    @property
    def follows_utilisation(self) -> bool:
        """Return whether a price depends on the utilisation of the link."""
        return any(tier.usd_micros_per_unit_max is not None for tier in self.tiers)

    def applies(self, src: str, dst: str, at_s: float) -> bool:
        """Return whether the tariff prices traffic of a link at a time."""
        return (
            self.src in (ANY, src)
            and self.dst in (ANY, dst)
            and self.valid_from_s <= at_s
            and (self.valid_until_s is None or at_s < self.valid_until_s)
        )

    def cost_usd(
        self, quantity: Fraction, used: Fraction = Fraction(0), utilisation: Fraction = Fraction(0)
    ) -> Fraction:
        """Return the exact cost of a quantity after `used` in the same month, both in the tariff's unit.

        `utilisation` is that of the link, see `utilisation_price`.
        """
        if quantity < 0 or used < 0:
            raise UsageError("a quantity must not be negative")
        left, total, share = quantity, used + quantity, load_share(utilisation)
        cost_micros = Fraction(0)
        for tier in reversed(self.tiers):
            in_tier = min(left, max(Fraction(0), total - tier.from_quantity))
            cost_micros += in_tier * tier.usd_micros_at(share)
            left, total = left - in_tier, total - in_tier
        return cost_micros / MICROS_PER_USD


def tariff_for(tariffs: Sequence[Tariff], src: str, dst: str, at_s: float) -> Tariff:
    """Return the tariff of a link at a time.

    A tariff for both regions comes before one for the source, then one for the destination, then one for all. Among
    equals the one that became valid last applies, then the last by name. Raises MarketError if there is none.
    """
    valid = [tariff for tariff in tariffs if tariff.applies(src, dst, at_s)]
    if not valid:
        raise MarketError(f"no tariff for {src} to {dst} at this time", hint="add a tariff for `*`, or another date")
    return max(valid, key=lambda tariff: (tariff.src != ANY, tariff.dst != ANY, tariff.valid_from_s, tariff.name))


def utilisation_price(
    margin: Margin,
    utilisation: Fraction,
    idle: Fraction = IDLE_UTILISATION,
    full: Fraction = FULL_UTILISATION,
) -> Fraction:
    """Return the price at a utilisation of the link (section V-B): lower bound when idle, upper bound under load.

    Raises EmptyMargin, and UsageError for a negative utilisation.
    """
    return margin.at(load_share(utilisation, idle, full))


def load_share(utilisation: Fraction, idle: Fraction = IDLE_UTILISATION, full: Fraction = FULL_UTILISATION) -> Fraction:
    """Return the share of the margin at a utilisation: 0 up to `idle`, 1 from `full` on, and linear in between.

    It never falls as utilisation rises. Utilisation is demand over capacity and may exceed 1. Raises UsageError for a
    negative one.
    """
    if not 0 <= idle < full or utilisation < 0:
        raise UsageError("utilisation must not be negative, and `idle` must be below `full`")
    return min(Fraction(1), max(Fraction(0), (utilisation - idle) / (full - idle)))
