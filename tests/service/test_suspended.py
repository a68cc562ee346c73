"""A server whose machine was suspended: another server may have adopted its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from tradewind.service import leases
from tradewind.service.jobs import JobLease, LeaseLost
from tradewind.service.leases import LeaseKeeper

LEASE_S = 30.0
LEASE = JobLease("job", "here", 1)


class Claims:
    """Claims of one running job."""

    def renew(self) -> Mapping[JobLease, str]:
        """Renew them."""
        return {LEASE: "running"}

    held = renew


class Faults:
    """Catches nothing."""

    def caught(self, part: str) -> Any:
        """Return the context."""
        return nullcontext()


class Right:
    """The right to schedule."""

    def keep(self) -> None:
        """Keep it."""


def test_leases_are_not_relied_on_after_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [1000.0]
    monkeypatch.setattr(leases, "elapsed_s", lambda: clock_s[0])
    keeper = LeaseKeeper(Claims(), Right(), LEASE_S, Faults())  # type: ignore[arg-type]
    keeper._look()
    assert keeper.held() == [LEASE] and keeper.state(LEASE) == "running"
    clock_s[0] += LEASE_S  # It slept.
    assert keeper.held() == []
    with pytest.raises(LeaseLost):
        keeper.state(LEASE)
    keeper._look()
    assert keeper.held() == [LEASE]
