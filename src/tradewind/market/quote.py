"""Quotes: a price for one transfer that the service keeps until the quote expires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tradewind.errors import MarketError, QuoteExpired, UsageError
from tradewind.market.money import exact, micros_up
from tradewind.market.tariff import Tariff, tariff_for
from tradewind.model.document import Document
from tradewind.model.records import dataclass, field, replace

__all__ = ["QUOTES_MAX", "QuoteBook", "TransferQuote", "quote_transfer"]

#: Most quotes that are open at a time. Further ones are refused until some expire.
QUOTES_MAX = 10_000
#: Longest time for which a quote is kept: 7 days.
KEPT_S_MAX = 604_800.0
BYTES_PER_GB = 10**9
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class TransferQuote(Document):
    """A price for a transfer. Times are Unix times."""

    id: str
    tenant: str
    src: str
    dst: str
    volume_bytes: int
    usd_micros: int
    tariff: str
    """Name of the tariff that it was made by. A later change of tariffs does not change the quote."""
    made_s: float
    expires_s: float


@dataclass(frozen=True)
class QuoteBook(Document):
    """Open quotes. Each method returns the book after it; none reads a clock."""

    quotes: Mapping[str, TransferQuote] = field(default_factory=dict)

    def add(self, quote: TransferQuote, now_s: float) -> QuoteBook:
        """Return the book with one more quote, and without expired ones.

        Raises UsageError for an id that is taken or a quote that has expired, and MarketError if the book is full.
        """
        open_ = {id: each for id, each in self.quotes.items() if now_s < each.expires_s}
        if quote.id in open_ or quote.expires_s <= now_s or quote.usd_micros < 0:
            raise UsageError(f"quote {quote.id}: its id is taken, it has expired, or its price is negative")
        if len(open_) >= QUOTES_MAX:
            raise MarketError(f"{QUOTES_MAX:,} quotes are open", hint="wait until some expire, or accept one")
        return replace(self, quotes={**open_, quote.id: quote})

    def accept(self, id: str, tenant: str, now_s: float) -> tuple[TransferQuote, QuoteBook]:
        """Return a quote and the book without it: a quote holds for one transfer.

        Raises QuoteExpired, and MarketError for a quote that does not exist or is of another tenant.
        """
        quote = self.quotes.get(id)
        if quote is None or quote.tenant != tenant:
            raise MarketError(f"no quote {id}", hint="make a new quote")
        if now_s >= quote.expires_s:
            raise QuoteExpired(f"quote {id} has expired", hint="make a new quote")
        return quote, replace(self, quotes={key: each for key, each in self.quotes.items() if key != id})


def quote_transfer(
    tariffs: Sequence[Tariff],
    id: str,
    tenant: str,
    link: tuple[str, str],
    volume_bytes: int,
    transfer_s: float,
    *,
    now_s: float,
    kept_s: float,
    used: Fraction = Fraction(0),
) -> TransferQuote:
    """Return a quote by the tariff of a link, source and destination, at `now_s`. It is kept for `kept_s`.

    `transfer_s` is the predicted time, for tariffs per hour. `used` is the quantity of the month so far, in the
    tariff's unit. The price is rounded up to a micro-dollar. Raises MarketError if the link has no tariff, and
    UsageError for negative amounts or a time over KEPT_S_MAX.
    """
    if volume_bytes < 0 or not 0 < kept_s <= KEPT_S_MAX:
        raise UsageError(f"a quote needs a volume that is not negative, and is kept for up to {KEPT_S_MAX:,.0f} s")
    src, dst = link
    tariff = tariff_for(tariffs, src, dst, now_s)
    per_unit = {"GB": Fraction(volume_bytes, BYTES_PER_GB), "hour": exact(transfer_s) / SECONDS_PER_HOUR}
    usd_micros = micros_up(tariff.cost_usd(per_unit[tariff.unit], used))
    return TransferQuote(id, tenant, src, dst, volume_bytes, usd_micros, tariff.name, now_s, now_s + kept_s)
