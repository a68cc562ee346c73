"""The time for which a machine is charged: clocks may be wrong or change, and this machine may be suspended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.test_reactions import Meter
from tradewind.fleet.charges import Charges
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.leases import Leases
from tradewind.gateway.process import STOP_S

LEASE_S = 900.0
"""A machine was launched an hour ago, and its lease was last renewed 100 s ago."""


class Lives(Meter):
    """Notes how long ago machines ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_ago_s: list[float] = []

    def ended(self, fleet: str, names: Any = None, ago_s: float = 0.0) -> None:
        self.ended_ago_s.append(ago_s)


class Renewed:
    """A gateway that answers each renewal."""

    def renew_lease(self, lease_s: int, timeout_s: float) -> None:
        """Nothing fails."""


def ended_ago_s(folder: Path, reported_ago_s: float | None, silent_s: float = 100.0) -> float:
    """Return how long ago a machine ended by its charges, if it last answered `silent_s` ago."""
    leases, meter, now_s = Leases(lambda _: Renewed(), print, lambda *_: None), Lives(), [0.0]  # type: ignore[arg-type, return-value]
    leases._clock = lambda: now_s[0]
    leases.begin("one", LEASE_S)
    now_s[0] = 3600.0 - silent_s
    leases.renew(["one"], int(LEASE_S))
    now_s[0] = 3600.0
    charges = Charges("f", FleetJournal(folder), meter, leases, None, states_prices=False)  # type: ignore[arg-type]
    charges.ended("one", None if reported_ago_s is None else time.time() - reported_ago_s)
    (ago_s,) = meter.ended_ago_s
    return ago_s


@pytest.mark.parametrize(("reported_ago_s", "ago_s"), [(None, 0.0), (60.0, 60.0), (-3600.0, 0.0), (1800.0, 100.0)])
def test_a_machine_that_answered_had_not_ended_whatever_a_clock_says(
    tmp_path: Path, reported_ago_s: float | None, ago_s: float
) -> None:
    assert ended_ago_s(tmp_path, reported_ago_s) == pytest.approx(ago_s, abs=1.0)


def test_a_lease_that_expired_unnoticed_ends_the_charges(tmp_path: Path) -> None:
    silent_s = 3000.0
    assert ended_ago_s(tmp_path, None, silent_s) == pytest.approx(silent_s - LEASE_S - STOP_S)


def test_leases_expire_while_this_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(lambda _: Renewed(), print, lambda *_: None)  # type: ignore[arg-type, return-value]
    leases.begin("one", LEASE_S)
    awake, slept_s = time.clock_gettime, 3600.0
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + slept_s)
    assert leases.expired_s("one") == pytest.approx(slept_s - LEASE_S, abs=5.0)
