"""The auction of one link's idle bandwidth in one hour: all winners pay the same price, that of the highest losing bid.

Bandwidth is sold in slices. A bid has a price for one slice and a number of slices, which may be won in part. The
highest bids win. Each winner pays, for each slice, the highest bid for a slice that was not sold, but at least the
reserve. If all demand is met, the price is the reserve.

- A bidder for one slice does best to bid its value: its bid decides whether it wins, and not what it pays.
- A bidder for several slices may gain by bidding low for the last ones, because its own losing slice can set the price.
  This holds for every uniform-price auction, and is not prevented. Several bids of one bidder count the same.
- Equal bids: the one placed first wins. The result does not depend on the order of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tradewind.errors import UsageError
from tradewind.market.margins import Margin
from tradewind.market.money import micros_up
from tradewind.model.document import Document
from tradewind.model.records import dataclass

__all__ = ["Award", "Bid", "Clearing", "Lot", "clear", "reserve_usd_micros"]

#: Most bids of one auction, and most slices of a lot or a bid.
BIDS_MAX = 100_000
SLICES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Lot(Document):
    """The idle bandwidth of a link in one hour."""

    src: str
    dst: str
    hour: int
    """Hours since 1970, UTC."""
    slices: int
    reserve_usd_micros: int
    """Least price of a slice; see `reserve_usd_micros`."""


@dataclass(frozen=True, slots=True)
class Bid(Document):
    """An offer to pay up to a price for each of some slices."""

    id: str
    tenant: str
    usd_micros: int
    """For one slice."""
    placed: int
    """Position in the order of arrival."""
    slices: int = 1


@dataclass(frozen=True, slots=True)
class Award(Document):
    """The slices that a bid won, and what they cost together."""

    bid: str
    tenant: str
    slices: int
    usd_micros: int


@dataclass(frozen=True, slots=True)
class Clearing(Document):
    """The result of an auction."""

    lot: Lot
    usd_micros: int
    """Price of each slice."""
    awards: tuple[Award, ...]
    unsold: int

    @property
    def revenue_usd_micros(self) -> int:
        """Sum of all awards."""
        return sum(award.usd_micros for award in self.awards)


def reserve_usd_micros(margin_per_gb: Margin, slice_gb: Fraction) -> int:
    """Return the least price of a slice: the lower bound of the margin for its volume, rounded up.

    Raises EmptyMargin.
    """
    margin_per_gb.require()
    return micros_up(margin_per_gb.lower_usd * slice_gb)


def clear(lot: Lot, bids: Sequence[Bid]) -> Clearing:
    """Return who wins which slices at what price.

    Raises UsageError for too many bids or slices, two bids with one id, and negative prices.
    """
    _check(lot, bids)
    ranked = sorted(
        (bid for bid in bids if bid.usd_micros >= lot.reserve_usd_micros),
        key=lambda bid: (-bid.usd_micros, bid.placed, bid.id),
    )
    left, price, won = lot.slices, lot.reserve_usd_micros, []
    for bid in ranked:
        slices = min(left, bid.slices)
        left -= slices
        if slices:
            won.append((bid, slices))
        if slices < bid.slices:
            price = bid.usd_micros  # The first slice that loses is the dearest.
            break
    awards = tuple(Award(bid.id, bid.tenant, slices, slices * price) for bid, slices in won)
    return Clearing(lot, price, awards, left)


def _check(lot: Lot, bids: Sequence[Bid]) -> None:
    if len(bids) > BIDS_MAX:
        raise UsageError(f"{len(bids):,} bids are more than the {BIDS_MAX:,} of one auction")
    if not 0 <= lot.slices <= SLICES_MAX or lot.reserve_usd_micros < 0:
        raise UsageError(f"a lot has at most {SLICES_MAX:,} slices, and its reserve must not be negative")
    if len({bid.id for bid in bids}) < len(bids):
        raise UsageError("the ids of bids must differ")
    for bid in bids:
        if not 1 <= bid.slices <= SLICES_MAX or bid.usd_micros < 0:
            raise UsageError(f"bid {bid.id}: it needs 1 to {SLICES_MAX:,} slices, and a price that is not negative")
