"""`/v1/market`: the range of the service's price, its price now, and the energy; also that of a month's jobs.

The load of the service is that of all tenants. A tenant gets it in steps of a quarter, and its price with it: exact
figures would show when others begin and end transfers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from tradewind.engine.market import (
    EXTRA_NODES_MAX,
    MACHINE_USD_PER_HOUR,
    OUTBOUND_USD_PER_GB,
    market_margins,
    market_scene,
)
from tradewind.market.energy import energy_ratio
from tradewind.market.margins import PAPER_RATIOS, margin
from tradewind.market.money import exact
from tradewind.market.tariff import utilisation_price
from tradewind.service.api.tenants import TENANTS
from tradewind.service.auth import Sender, needs
from tradewind.service.energy import energy_of_month
from tradewind.service.tables import ACTIVE
from tradewind.service.utilisation import stepped

__all__ = ["router"]

router = APIRouter(prefix="/v1/market", tags=["market"])
READ = needs("jobs:read")
Usd = Annotated[float, Query(ge=0, le=1e6)]
ExtraNodes = Annotated[int, Query(ge=0, le=EXTRA_NODES_MAX)]
#: Most nodes of a service in an energy report.
SERVICE_NODES_MAX = 100_000


class EnergyView(BaseModel):
    """Energy of a month's jobs by the service, and of the same jobs by users' own machines.

    A node takes 202.5 W. `service_kwh` counts two nodes for each active job, and the service nodes while any job is
    active; `idle_kwh` counts the service nodes for the rest of the month. Multi-route takes 1/1.2 of the time.
    """

    month: str
    final: bool
    transfers: int
    transfer_hours: float
    busy_hours: float
    service_nodes: int
    extra_nodes: int
    service_kwh: float
    idle_kwh: float
    users_kwh: float
    ratio: float | None


@router.get("")
def market(
    request: Request,
    extra_nodes: ExtraNodes = 5,
    machine_usd_per_hour: Annotated[float, Query(gt=0, le=1e6)] = MACHINE_USD_PER_HOUR,
    outbound_usd_per_gb: Usd = OUTBOUND_USD_PER_GB,
    sender: Sender = READ,
) -> dict[str, Any]:
    """Show the margins, the price at the present utilisation, and the energy of users' own machines over the service's.

    The utilisation is running and waiting jobs over the jobs that all servers may run. Tenants get it rounded to
    quarters, at most 1, and the price at that; `running_jobs`, `service_nodes` and `energy_ratio` are null for them.
    The price is null where the margin is empty.
    """
    service = request.app.state.service
    scene = market_scene(
        extra_nodes=extra_nodes, machine_usd_per_hour=machine_usd_per_hour, outbound_usd_per_gb=outbound_usd_per_gb
    )
    report = market_margins(scene).document()
    counts = service.queue.count_by_state()
    running, slots = sum(counts[state] for state in ACTIVE), service.jobs_max
    utilisation = Fraction(running + counts["waiting"], slots)
    sees_all = "tenants" in sender.scopes
    if not sees_all:
        utilisation = Fraction(stepped(float(utilisation)))
    span = margin(PAPER_RATIOS, extra_nodes, exact(machine_usd_per_hour))
    price = None if span.is_empty else float(utilisation_price(span, utilisation))
    is_shown = sees_all and running > 0
    ratio = energy_ratio(running, extra_nodes, slots, PAPER_RATIOS.service_per_umr) if is_shown else None
    return {
        **report,
        "now": {
            "utilisation": float(utilisation),
            "usd_per_hour": price,
            "running_jobs": running if sees_all else None,
            "service_nodes": slots if sees_all else None,
            "energy_ratio": None if ratio is None else float(ratio),
        },
    }


@router.get("/energy", response_model=EnergyView)
def energy(
    request: Request,
    month: Annotated[str | None, Query(pattern=r"^(19[7-9]|20[0-9]|21[0-9])[0-9]-(0[1-9]|1[0-2])$")] = None,
    service_nodes: Annotated[int | None, Query(ge=0, le=SERVICE_NODES_MAX)] = None,
    extra_nodes: ExtraNodes = 5,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """Show the energy of all jobs in a month (UTC), by default this month until now.

    `service_nodes` is by default the number of jobs that all servers may run now.
    """
    service = request.app.state.service
    nodes = service.jobs_max if service_nodes is None else service_nodes
    with service.database.read() as connection:
        return energy_of_month(connection, month, nodes, extra_nodes)
