"""Charges: what a tenant owes, line by line, made from ledgers of jobs and from auctions."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.market.auction import Clearing
from tradewind.market.money import MICROS_PER_USD, apportion, exact
from tradewind.model.document import Document
from tradewind.model.ledger import LedgerLine
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["Charge", "auction_charges", "ledger_charges"]

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Charge(Document):
    """One line of what a tenant owes."""

    tenant: str
    at_s: float
    """Unix time. It decides the invoice's month."""
    subject: str
    """Id of the job or bid."""
    what: str
    usd_micros: int
    """Negative for a credit."""


def ledger_charges(tenant: str, job: str, lines: Iterable[LedgerLine], at_s: float) -> tuple[Charge, ...]:
    """Return the charges of a job's ledger. They add up to the ledger's exact sum, rounded to micro-dollars."""
    kept = tuple(lines)
    micros = apportion([exact(line.quantity) * exact(line.unit_usd) * MICROS_PER_USD for line in kept])
    return tuple(
        Charge(tenant, at_s, job, f"{line.kind}: {line.what}", usd_micros)
        for line, usd_micros in zip(kept, micros, strict=True)
    )


def auction_charges(clearing: Clearing) -> tuple[Charge, ...]:
    """Return the charges of an auction's winners, at the start of its hour."""
    lot = clearing.lot
    return tuple(
        Charge(
            award.tenant,
            float(lot.hour * SECONDS_PER_HOUR),
            award.bid,
            f"auction: {award.slices} of {format_count(lot.slices, 'slice')} {lot.src} → {lot.dst}",
            award.usd_micros,
        )
        for award in clearing.awards
    )
