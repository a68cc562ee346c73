"""Budgets: no order of reservations, spending and releases exceeds the limit."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from tradewind.errors import BudgetExceeded, MarketError, UsageError
from tradewind.market import budget as budget_module
from tradewind.market.budget import TenantBudget
from tradewind.model.document import to_document


def test_a_reservation_holds_until_it_is_settled() -> None:
    budget = TenantBudget(100).reserve("job-1", 60)
    with pytest.raises(BudgetExceeded, match="left of the budget") as caught:
        budget.reserve("job-2", 41)
    assert caught.value.exit_code == 8
    budget = budget.settle("job-1", 25).reserve("job-2", 75)
    assert (budget.spent_usd_micros, budget.reserved_usd_micros, budget.free_usd_micros) == (25, 75, 0)
    assert TenantBudget.from_document(to_document(budget)) == budget


def test_a_job_that_needs_more_extends_its_reservation_first() -> None:
    budget = TenantBudget(100).reserve("job", 60)
    with pytest.raises(BudgetExceeded, match="more than"):
        budget.settle("job", 61)
    with pytest.raises(BudgetExceeded):
        budget.extend("job", 41)
    assert budget.extend("job", 40).settle("job", 100).free_usd_micros == 0


def test_a_repeated_reservation_counts_once() -> None:
    budget = TenantBudget(100).reserve("job", 60)
    assert budget.reserve("job", 60) == budget
    with pytest.raises(UsageError, match="reservation job exists"):
        budget.reserve("job", 50)


def test_a_settled_reservation_is_gone() -> None:
    budget = TenantBudget(100).reserve("job", 60).settle("job", 60)
    with pytest.raises(MarketError, match="no reservation job"):
        budget.settle("job", 0)
    with pytest.raises(UsageError):
        budget.reserve("other", -1)


def test_the_number_of_reservations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "RESERVATIONS_MAX", 1)
    with pytest.raises(MarketError, match="1 reservations are open"):
        TenantBudget(100).reserve("a", 1).reserve("b", 1)


@pytest.mark.parametrize("seed", range(25))
def test_no_order_of_steps_exceeds_the_limit(seed: int) -> None:
    rng = random.Random(seed)
    budget = TenantBudget(rng.randint(0, 200))
    spent = 0
    for _ in range(200):
        id, amount = f"job-{rng.randint(0, 5)}", rng.randint(0, 80)
        steps: list[Callable[[], TenantBudget]] = [
            partial(budget.reserve, id, amount),
            partial(budget.extend, id, amount),
            partial(budget.spend, id, amount),
            partial(budget.settle, id, amount),
            partial(budget.release, id),
        ]
        choice = rng.randrange(len(steps))
        try:
            budget = steps[choice]()
            spent += amount if choice in (2, 3) else 0
        except (MarketError, UsageError):
            pass  # A refused step changes nothing.
        assert budget.spent_usd_micros == spent
        assert budget.spent_usd_micros + budget.reserved_usd_micros <= budget.limit_usd_micros
        assert all(amount >= 0 for amount in budget.reserved.values())
