"""A tenant's budget. Money is reserved before it is spent, so spending never exceeds the limit.

In every state, spent + reserved <= limit. A job that needs more than it reserved extends its reservation first, and is
refused if that does not fit. There is no clock: a new month gets a new budget.
"""

from __future__ import annotations

from collections.abc import Mapping

from tradewind.errors import BudgetExceeded, MarketError, UsageError
from tradewind.market.money import format_micros
from tradewind.model.document import Document
from tradewind.model.records import dataclass, field, replace

__all__ = ["RESERVATIONS_MAX", "TenantBudget"]

#: Most reservations that are open at a time. Further ones are refused.
RESERVATIONS_MAX = 10_000


@dataclass(frozen=True)
class TenantBudget(Document):
    """A limit, what is spent, and what is reserved. Each method returns the budget after it, or raises."""

    limit_usd_micros: int
    spent_usd_micros: int = 0
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Micro-dollars by id of the reservation, usually that of a job."""

    @property
    def reserved_usd_micros(self) -> int:
        """Sum of all reservations."""
        return sum(self.reserved.values())

    @property
    def free_usd_micros(self) -> int:
        """The amount that can still be reserved."""
        return self.limit_usd_micros - self.spent_usd_micros - self.reserved_usd_micros

    def reserve(self, id: str, usd_micros: int) -> TenantBudget:
        """Reserve an amount. The same reservation again changes nothing, so a request can be repeated.

        Raises BudgetExceeded, UsageError for another amount under the same id, MarketError for too many reservations.
        """
        _refuse_negative(usd_micros)
        if id in self.reserved:
            if self.reserved[id] != usd_micros:
                raise UsageError(f"reservation {id} exists, with {format_micros(self.reserved[id])}")
            return self
        if len(self.reserved) >= RESERVATIONS_MAX:
            raise MarketError(f"{RESERVATIONS_MAX:,} reservations are open", hint="settle or release some")
        return self._with(id, usd_micros)

    def extend(self, id: str, more_usd_micros: int) -> TenantBudget:
        """Add to a reservation. Raises BudgetExceeded, and MarketError if it does not exist."""
        _refuse_negative(more_usd_micros)
        return self._with(id, self._of(id) + more_usd_micros)

    def spend(self, id: str, usd_micros: int) -> TenantBudget:
        """Spend a part of a reservation; the rest stays reserved.

        Raises BudgetExceeded for more than is reserved, and MarketError if the reservation does not exist.
        """
        _refuse_negative(usd_micros)
        left = self._of(id) - usd_micros
        if left < 0:
            raise BudgetExceeded(
                f"{id}: {format_micros(usd_micros)} is more than the {format_micros(self._of(id))} that is reserved",
                hint="extend the reservation first",
            )
        return replace(self, spent_usd_micros=self.spent_usd_micros + usd_micros, reserved={**self.reserved, id: left})

    def settle(self, id: str, usd_micros: int) -> TenantBudget:
        """Spend the final amount and free the rest of the reservation. Errors are those of `spend`."""
        return self.spend(id, usd_micros).release(id)

    def release(self, id: str) -> TenantBudget:
        """Free a reservation. Raises MarketError if it does not exist."""
        self._of(id)
        return replace(self, reserved={key: each for key, each in self.reserved.items() if key != id})

    def _of(self, id: str) -> int:
        if id not in self.reserved:
            raise MarketError(f"no reservation {id}", hint="it was settled or released, or never made")
        return self.reserved[id]

    def _with(self, id: str, usd_micros: int) -> TenantBudget:
        more = usd_micros - self.reserved.get(id, 0)
        if more > self.free_usd_micros:
            raise BudgetExceeded(
                f"{id}: {format_micros(more)} is more than the {format_micros(max(0, self.free_usd_micros))} that is"
                " left of the budget",
                hint="wait for running jobs to settle, or raise the budget",
            )
        return replace(self, reserved={**self.reserved, id: usd_micros})


def _refuse_negative(usd_micros: int) -> None:
    if usd_micros < 0:
        raise UsageError("an amount of a budget must not be negative")
