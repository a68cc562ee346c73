"""The price of a transfer: the cost of its machines, egress and requests, and the operator's tariff."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from sqlalchemy import Connection, func, select

from tradewind.market.charge import ledger_charges
from tradewind.market.money import MICROS_PER_USD, apportion, micros_of
from tradewind.market.tariff import Tariff, tariff_for
from tradewind.model.ledger import LedgerLine
from tradewind.model.records import dataclass
from tradewind.service.budgets import period_start_ms
from tradewind.service.exact_sums import exact_sums, sum_parts
from tradewind.service.money_tables import charges, tariffs

__all__ = [
    "TARIFF_LINE",
    "Amount",
    "TariffUse",
    "hourly_tariff",
    "ledger_amounts",
    "price_time_ms",
    "sent_part",
    "tariff_amounts",
    "tariffs_at",
    "used_in_month",
]

MS_PER_HOUR = 3_600_000
BYTES_PER_GB = 10**9
#: Prefix of the lines of a tariff.
TARIFF_LINE = "service: "


@dataclass(frozen=True, slots=True)
class Amount:
    """A line of a price: what for, and how much."""

    what: str
    usd_micros: int


@dataclass(frozen=True, slots=True)
class TariffUse:
    """Quantity that tariffs price: the volume of a transfer, to all destinations together, and its time."""

    volume_bytes: int
    run_ms: int


def tariffs_at(connection: Connection, at_ms: int) -> tuple[Tariff, ...]:
    """Return the operator's price list that was in force at a time; empty before the first."""
    query = select(tariffs.c.document).where(tariffs.c.set_unix_ms <= at_ms).order_by(tariffs.c.number.desc()).limit(1)
    text = connection.execute(query).scalar()
    return () if text is None else tuple(Tariff.from_document(entry) for entry in json.loads(text))


def price_time_ms(connection: Connection, now_ms: int) -> int:
    """Return the Unix time by which prices are chosen [ms]: that of the newest price list if a clock was set back."""
    newest = connection.execute(select(func.max(tariffs.c.set_unix_ms))).scalar()
    return max(now_ms, newest or 0)


def used_in_month(connection: Connection, tenant: str, at_ms: int) -> TariffUse:
    """Return what a tenant has used in the month of a time, for the tiers of tariffs."""
    query = select(*sum_parts(charges.c.volume_bytes, charges.c.run_ms))
    query = query.where(charges.c.tenant == tenant, charges.c.at_unix_ms >= period_start_ms("month", at_ms))
    volume_bytes, run_ms = exact_sums(connection.execute(query).one())
    return TariffUse(volume_bytes, run_ms)


def tariff_amounts(
    price_list: Sequence[Tariff],
    links: Sequence[Sequence[str]],
    use: TariffUse,
    used: TariffUse,
    at_ms: int,
    utilisations: Sequence[float] = (),
) -> list[Amount]:
    """Return one line per link of a transfer; none without a price list. The volume is shared by the links evenly.

    `utilisations` has that of each link; without it, links are idle. Raises MarketError if a link has no tariff.
    """
    if not price_list or not links:
        return []
    exact_micros, names, before = [], [], used
    for (src, dst), utilisation in zip(links, utilisations or [0.0] * len(links), strict=True):
        tariff = tariff_for(price_list, src, dst, at_ms / 1000)
        quantity = _quantity(tariff, use) / len(links)
        cost_usd = tariff.cost_usd(quantity, _quantity(tariff, before), Fraction(utilisation))
        exact_micros.append(cost_usd * MICROS_PER_USD)
        load = f", at {utilisation:.0%} utilisation" if tariff.follows_utilisation else ""
        names.append(f"{TARIFF_LINE}{tariff.name}, {src} → {dst}{load}")
        before = TariffUse(
            before.volume_bytes + use.volume_bytes // len(links), before.run_ms + use.run_ms // len(links)
        )
    return [Amount(name, micros) for name, micros in zip(names, apportion(exact_micros), strict=True)]


def hourly_tariff(price_list: Sequence[Tariff], links: Sequence[Sequence[str]], at_ms: int) -> Tariff | None:
    """Return a tariff per hour that applies to one of the links; None without one. Raises MarketError."""
    found = (tariff_for(price_list, src, dst, at_ms / 1000) for src, dst in links) if price_list else ()
    return next((tariff for tariff in found if tariff.unit == "hour"), None)


def sent_part(receipt: Mapping[str, Any]) -> float:
    """Return the part of a job's bytes that was sent after deduplication and compression; 1 without both."""
    names = ("deduplication", "compression")
    ratios: list[float | None] = [(receipt.get(name) or {}).get("ratio") for name in names]
    return prod(ratio for ratio in ratios if ratio is not None)


def ledger_amounts(tenant: str, job: str, cost: Mapping[str, Any]) -> list[Amount]:
    """Return the lines of a receipt's cost: machines, egress and requests, as the engine counts them."""
    lines = [
        LedgerLine(**{name: line[name] for name in LedgerLine.__dataclass_fields__}) for line in cost.get("lines", ())
    ]
    if not lines and cost.get("metered_usd"):
        return [Amount("egress", micros_of(cost["metered_usd"]))]
    return [Amount(charge.what, charge.usd_micros) for charge in ledger_charges(tenant, job, lines, 0.0)]


def _quantity(tariff: Tariff, use: TariffUse) -> Fraction:
    if tariff.unit == "GB":
        return Fraction(use.volume_bytes, BYTES_PER_GB)
    return Fraction(use.run_ms, MS_PER_HOUR)
