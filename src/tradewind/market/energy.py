"""The energy of transfers, by users' own machines and by the service.

Source: "Transfer as a Service", section V-C, equations 2-4. A rack switch takes 60 W for 24 nodes, a node 200 W. With A
applications, N extra machines each, M service nodes, t hours by multi-route and c = t_cts/t_umr:

    E_umr = [A(2 + N)/24·60 + A(2 + N)·200]·t
    E_cts = [2A/24·60 + 2A·200 + M/24·60 + M·200]·t·c
    ratio = A(2 + N) / ((2A + M)·c)

The paper prints (2 + N·200) in equation 2, with the bracket in the wrong place; equation 4 follows from the formula
above. A part of a rack counts as that part of its switch.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tradewind.errors import UsageError
from tradewind.market.margins import END_NODES
from tradewind.model.records import dataclass

__all__ = ["NODE_WH_PER_HOUR", "EnergyUse", "energy_ratio", "energy_use", "service_energy_wh", "umr_energy_wh"]

SWITCH_W = 60
NODES_PER_SWITCH = 24
NODE_W = 200
#: A node with its part of the rack's switch: 202.5 Wh in an hour.
NODE_WH_PER_HOUR = Fraction(SWITCH_W, NODES_PER_SWITCH) + NODE_W


def umr_energy_wh(applications: int, extra_nodes: int, umr_hours: Fraction) -> Fraction:
    """Return the energy if each application uses machines of its own (equation 2, corrected) [Wh]."""
    _refuse_negative(applications, extra_nodes, umr_hours)
    return applications * (END_NODES + extra_nodes) * NODE_WH_PER_HOUR * umr_hours


def service_energy_wh(
    applications: int, service_nodes: int, umr_hours: Fraction, service_per_umr: Fraction
) -> Fraction:
    """Return the energy if all applications use the service (equation 3) [Wh]."""
    _refuse_negative(applications, service_nodes, umr_hours, service_per_umr)
    return (END_NODES * applications + service_nodes) * NODE_WH_PER_HOUR * umr_hours * service_per_umr


def energy_ratio(applications: int, extra_nodes: int, service_nodes: int, service_per_umr: Fraction) -> Fraction:
    """Return the users' energy over the service's (equation 4): above 1, the service saves energy.

    Raises UsageError for negative numbers, and without applications.
    """
    if applications < 1 or service_per_umr <= 0:
        raise UsageError("an energy ratio needs an application, and a time of the service above zero")
    hour = Fraction(1)
    return umr_energy_wh(applications, extra_nodes, hour) / service_energy_wh(
        applications, service_nodes, hour, service_per_umr
    )


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """The energy of past transfers by the service, and of the same transfers by users' machines [Wh]."""

    transfers: int
    transfer_hours: Fraction
    """Sum of the times of all transfers."""
    busy_hours: Fraction
    """Time in which at least one transfer was active."""
    service_wh: Fraction
    """Sender and receiver of each transfer, and all service nodes while one was active (equation 3)."""
    idle_wh: Fraction
    """Service nodes for the rest of the period. The paper does not count it."""
    users_wh: Fraction
    """By multi-route, which takes 1/c of the time (equation 2, corrected)."""

    @property
    def ratio(self) -> Fraction | None:
        """The users' energy over the service's; None without transfers."""
        return self.users_wh / self.service_wh if self.service_wh else None


def energy_use(
    spans: Iterable[tuple[Fraction, Fraction]],
    period_hours: Fraction,
    *,
    service_nodes: int,
    extra_nodes: int,
    service_per_umr: Fraction,
) -> EnergyUse:
    """Return the energy of transfers by their begin and end within a period, in hours.

    Transfers may overlap: each has its own sender and receiver, and all share the service nodes. Raises UsageError
    for negative numbers and ratios.
    """
    if service_per_umr <= 0:
        raise UsageError("an energy report needs a time of the service above zero")
    _refuse_negative(service_nodes, extra_nodes, period_hours)
    known = sorted((begin, end) for begin, end in spans if end > begin)
    hours, busy, until = Fraction(0), Fraction(0), Fraction(0)
    for begin, end in known:
        hours += end - begin
        busy += max(Fraction(0), end - max(begin, until))
        until = max(until, end)
    nodes = service_nodes * NODE_WH_PER_HOUR
    return EnergyUse(
        len(known),
        hours,
        busy,
        END_NODES * hours * NODE_WH_PER_HOUR + busy * nodes,
        max(Fraction(0), period_hours - busy) * nodes,
        umr_energy_wh(1, extra_nodes, hours / service_per_umr),
    )


def _refuse_negative(*numbers: Fraction | int) -> None:
    if min(numbers) < 0:
        raise UsageError("numbers of applications and machines, and times, must not be negative")
