"""The bounds of the service's price: at least what end to end costs, at most what machines of one's own cost.

Source: Tudoran, Costan, Antoniu, "Transfer as a Service", section V-A. In the paper's letters, C is the price of a
machine for an hour, N the extra machines of a user's own multi-route transfer (UMR), s the service's price for an hour:

    t_e2e = a·t_umr = b·t_cts,   t_cts = c·t_umr,   so a = b·c

The costs of one transfer's machines are t_e2e·2C, t_umr·(2 + N)·C and t_cts·(2C + s). The service costs at least as
much as the first and at most as much as the second if

    2C(b - 1)  <=  s  <=  C(2 + N - 2c)/c

The paper prints +2c in the upper bound, which is a slip: the term changes sides. The range is empty unless
N >= 2(a - 1), whatever c is. All figures are exact.
"""

from __future__ import annotations

from fractions import Fraction

from tradewind.errors import EmptyMargin, UsageError
from tradewind.market.money import exact
from tradewind.model.records import dataclass

__all__ = ["PAPER_RATIOS", "Margin", "TimeRatios", "e2e_usd", "least_extra_nodes", "margin", "service_usd", "umr_usd"]

#: Sender and receiver.
END_NODES = 2


@dataclass(frozen=True, slots=True)
class TimeRatios:
    """Transfer times relative to each other. Raises UsageError for ratios that are not above zero."""

    e2e_per_umr: Fraction
    """a: time end to end over time by multi-route."""
    e2e_per_service: Fraction
    """b: time end to end over time of the service."""

    def __post_init__(self) -> None:
        if self.e2e_per_umr <= 0 or self.e2e_per_service <= 0:
            raise UsageError("ratios of transfer times must be above zero")

    @property
    def service_per_umr(self) -> Fraction:
        """c: time of the service over time by multi-route; a = b·c."""
        return self.e2e_per_umr / self.e2e_per_service


#: a = 3, b = 2.5, and so c = 1.2 (section V-A, from the measurements of section IV).
PAPER_RATIOS = TimeRatios(Fraction(3), Fraction(5, 2))


@dataclass(frozen=True, slots=True)
class Margin:
    """The range of a price [USD per `unit`]. An empty one keeps its bounds: it is reported, not clipped."""

    lower_usd: Fraction
    upper_usd: Fraction
    unit: str = "hour"

    @property
    def is_empty(self) -> bool:
        """True if no price pays for both sides. A single point is not empty."""
        return self.lower_usd > self.upper_usd

    def at(self, share: Fraction) -> Fraction:
        """Return the price at a share of the range, from 0 (lower bound) to 1 (upper bound).

        Raises EmptyMargin, and UsageError for another share.
        """
        self.require()
        if not 0 <= share <= 1:
            raise UsageError(f"a share of the margin is from 0 to 1, not {float(share):g}")
        return self.lower_usd + share * (self.upper_usd - self.lower_usd)

    def require(self) -> None:
        """Raise EmptyMargin if the range is empty."""
        if self.is_empty:
            raise EmptyMargin(
                f"no price is possible: the lower bound, ${float(self.lower_usd):.6g} per {self.unit}, is above the"
                f" upper bound, ${float(self.upper_usd):.6g}",
                hint="a price needs N >= 2(a - 1) extra machines: 4 with the paper's ratios",
            )

    def per_gb(self, hours_per_gb: Fraction) -> Margin:
        """Return the range per GB of 10^9 bytes. `hours_per_gb` is the time of the service for one GB."""
        if self.unit != "hour" or hours_per_gb <= 0:
            raise UsageError("only a margin per hour and a time above zero give a margin per GB")
        return Margin(self.lower_usd * hours_per_gb, self.upper_usd * hours_per_gb, "GB")

    def plus(self, usd: Fraction) -> Margin:
        """Return the range with a fixed price added, such as that of outbound traffic: the unified price (Fig. 13)."""
        return Margin(self.lower_usd + usd, self.upper_usd + usd, self.unit)


def margin(ratios: TimeRatios, extra_nodes: int, machine_usd_per_hour: Fraction | int | str) -> Margin:
    """Return the range of the service's price per hour (equation 1, corrected). It may be empty.

    Raises UsageError for a negative number of machines or price.
    """
    price = exact(machine_usd_per_hour)
    if extra_nodes < 0 or price < 0:
        raise UsageError("the number of extra machines and the price of a machine must not be negative")
    c = ratios.service_per_umr
    return Margin(
        END_NODES * price * (ratios.e2e_per_service - 1), price * (END_NODES + extra_nodes - END_NODES * c) / c
    )


def least_extra_nodes(ratios: TimeRatios) -> int:
    """Return the least N whose margin is not empty: the least integer that is at least 2(a - 1)."""
    return max(0, -int(-END_NODES * (ratios.e2e_per_umr - 1) // 1))


def e2e_usd(umr_hours: Fraction, ratios: TimeRatios, machine_usd_per_hour: Fraction) -> Fraction:
    """Return the cost of machines end to end, for a transfer that takes `umr_hours` by multi-route."""
    return umr_hours * ratios.e2e_per_umr * END_NODES * machine_usd_per_hour


def umr_usd(umr_hours: Fraction, extra_nodes: int, machine_usd_per_hour: Fraction) -> Fraction:
    """Return the cost of machines of a user's own multi-route transfer."""
    return umr_hours * (END_NODES + extra_nodes) * machine_usd_per_hour


def service_usd(
    umr_hours: Fraction, ratios: TimeRatios, machine_usd_per_hour: Fraction, service_usd_per_hour: Fraction
) -> Fraction:
    """Return the cost with the service: sender, receiver and the service's price, for the time of the service."""
    return umr_hours * ratios.service_per_umr * (END_NODES * machine_usd_per_hour + service_usd_per_hour)
