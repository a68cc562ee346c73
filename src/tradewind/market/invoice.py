"""Invoices: the charges of one tenant in one month, in cents that add up.

The total is the exact sum of the charges, rounded once to cents, half to even. Lines are rounded by the largest
remainder, so that they add up to the total; each differs from its charge by less than a cent.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction

from tradewind.errors import UsageError
from tradewind.market.charge import Charge
from tradewind.market.money import MICROS_PER_CENT, apportion
from tradewind.model.document import Document
from tradewind.model.records import dataclass

__all__ = ["Invoice", "InvoiceLine", "invoices", "month_of"]

CENTS_PER_USD = 100


@dataclass(frozen=True, slots=True)
class InvoiceLine(Document):
    """One line: all charges with the same subject and text."""

    subject: str
    what: str
    usd_micros: int
    """Exact amount, before rounding to cents."""
    cents: int


@dataclass(frozen=True, slots=True)
class Invoice(Document):
    """The charges of a tenant in a month. As a document it has `number`, `lines` and `total_cents`."""

    number: str
    """Month and tenant: the same charges make the same invoice."""
    tenant: str
    month: str
    """Month in UTC: `2026-11`."""
    lines: tuple[InvoiceLine, ...]
    total_cents: int

    def text(self) -> Iterator[str]:
        """Yield the invoice in words, line by line."""
        yield f"invoice  {self.number}"
        yield f"tenant   {self.tenant}"
        yield f"month    {self.month} (UTC)"
        for line in self.lines:
            yield f"  {_usd(line.cents):>14}  {line.subject}  {line.what}"
        yield f"  {_usd(self.total_cents):>14}  total"


def month_of(at_s: float) -> str:
    """Return the month of a Unix time in UTC: `2026-11`. Raises UsageError for a time without a calendar date."""
    try:
        return time.strftime("%Y-%m", time.gmtime(at_s))
    except (OverflowError, ValueError, OSError):
        raise UsageError(f"{at_s!r} is not a time") from None


def invoices(charges: Iterable[Charge]) -> tuple[Invoice, ...]:
    """Return one invoice for each tenant and month, in order of month and tenant."""
    found: defaultdict[tuple[str, str], defaultdict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for charge in charges:
        found[month_of(charge.at_s), charge.tenant][charge.subject, charge.what] += charge.usd_micros
    return tuple(_invoice(month, tenant, found[month, tenant]) for month, tenant in sorted(found))


def _invoice(month: str, tenant: str, amounts: dict[tuple[str, str], int]) -> Invoice:
    ordered = sorted(amounts.items())
    cents = apportion([Fraction(usd_micros, MICROS_PER_CENT) for _, usd_micros in ordered])
    lines = tuple(
        InvoiceLine(subject, what, usd_micros, each)
        for ((subject, what), usd_micros), each in zip(ordered, cents, strict=True)
    )
    return Invoice(f"{month}/{tenant}", tenant, month, lines, sum(cents))


def _usd(cents: int) -> str:
    whole, rest = divmod(abs(cents), CENTS_PER_USD)
    return f"{'-' if cents < 0 else ''}${whole:,}.{rest:02}"
