"""The thread that renews the leases of a fleet, while this machine is suspended and wakes up."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from tradewind.fleet import renewals
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.leases import RENEWALS_PER_LEASE, Leases
from tradewind.fleet.renewals import Renewals
from tradewind.fleet.settings import FleetSettings
from tradewind.model.latch import Latch

WAIT_S = 20.0


class Renewed:
    """A gateway that notes its renewals."""

    def __init__(self) -> None:
        self.leases: queue.SimpleQueue[int] = queue.SimpleQueue()

    def renew_lease(self, lease_s: int, timeout_s: float) -> None:
        """Note one."""
        self.leases.put(lease_s)


def test_leases_are_renewed_when_this_machine_wakes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s, settings, gateway, ended = [1000.0], FleetSettings(), Renewed(), Latch()
    monkeypatch.setattr(renewals, "elapsed_s", lambda: clock_s[0])
    monkeypatch.setattr(renewals, "HEARTBEAT_S", 0.05)
    leases = Leases(lambda _: gateway, print, lambda *_: None)  # type: ignore[arg-type, return-value]
    made = Renewals(
        "f-0",
        FleetJournal(tmp_path),
        leases,
        settings,
        meter=None,
        keeper=None,
        ended=ended,
        changing=threading.Lock(),
        machines=lambda: ["one"],
        charge_dead=lambda: None,
    )
    made.start()
    try:
        with pytest.raises(queue.Empty):
            gateway.leases.get(timeout=0.3)
        clock_s[0] += settings.lease_s / RENEWALS_PER_LEASE  # It slept.
        assert gateway.leases.get(timeout=WAIT_S) == settings.lease_s
    finally:
        ended.set()
        made.stop()
