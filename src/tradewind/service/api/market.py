"""`/v1/market`: the range of the service's price, its price now, and the energy."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from tradewind.engine.market import EXTRA_NODES_MAX, MACHINE_USD_PER_HOUR, OUTBOUND_USD_PER_GB, market_margins
from tradewind.market.energy import energy_ratio
from tradewind.market.margins import PAPER_RATIOS, margin
from tradewind.market.money import exact
from tradewind.market.tariff import utilisation_price
from tradewind.service.auth import Sender, needs
from tradewind.service.tables import ACTIVE

__all__ = ["router"]

router = APIRouter(prefix="/v1/market", tags=["market"])
READ = needs("jobs:read")
Usd = Annotated[float, Query(ge=0, le=1e6)]


@router.get("")
def market(
    request: Request,
    extra_nodes: Annotated[int, Query(ge=0, le=EXTRA_NODES_MAX)] = 5,
    machine_usd_per_hour: Annotated[float, Query(gt=0, le=1e6)] = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: Usd = OUTBOUND_USD_PER_GB,
    sender: Sender = READ,
) -> dict[str, Any]:
    """Show the margins, the price at the present utilisation, and the energy of users' own machines over the service's.

    The utilisation is running and waiting jobs over `--jobs`. The price is null where the margin is empty.
    """
    service = request.app.state.service
    report = market_margins(
        extra_nodes=extra_nodes, machine_usd_per_hour=machine_usd_per_hour, outbound_usd_per_gb=outbound_usd_per_gb
    ).document()
    counts = service.queue.count_by_state()
    running, slots = sum(counts[state] for state in ACTIVE), service.settings.jobs_max
    utilisation = Fraction(running + counts["waiting"], slots)
    span = margin(PAPER_RATIOS, extra_nodes, exact(machine_usd_per_hour))
    price = None if span.is_empty else float(utilisation_price(span, utilisation))
    ratio = energy_ratio(running, extra_nodes, slots, PAPER_RATIOS.service_per_umr) if running else None
    return {
        **report,
        "now": {
            "utilisation": float(utilisation),
            "usd_per_hour": price,
            "running_jobs": running,
            "service_nodes": slots,
            "energy_ratio": None if ratio is None else float(ratio),
        },
    }
