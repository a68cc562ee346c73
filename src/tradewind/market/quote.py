"""Quotes: a price for one transfer that the service keeps until the quote expires."""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.errors import MarketError, QuoteExpired, UsageError
from tradewind.model.document import Document
from tradewind.model.records import dataclass, field, replace

__all__ = ["QUOTES_MAX", "QuoteBook", "TransferQuote"]

#: Most quotes that are open at a time. Further ones are refused until some expire.
QUOTES_MAX = 10_000


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
            raise MarketError(f"no quote {id}", hint="ask for a new quote")
        if now_s >= quote.expires_s:
            raise QuoteExpired(f"quote {id} has expired", hint="ask for a new quote")
        return quote, replace(self, quotes={key: each for key, each in self.quotes.items() if key != id})
