"""The remains of an acceleration whose supervisor was killed: its fleets, by the journal, and their machines' cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tradewind.model.acceleration import AccelerationState
from tradewind.model.ledger import Ledger, MachinePrice, MachineUse
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.journal import FleetRecord

__all__ = ["end_remains", "purpose_of", "with_remains"]


def purpose_of(acceleration_id: str) -> str:
    """Return the purpose under which the journal records the fleets of an acceleration."""
    return f"acceleration {acceleration_id}"


def with_remains(control: JobControl, state: AccelerationState) -> AccelerationState:
    """Return the state with its recorded fleets, and their machines in the ledger. Raises ConfigError.

    A supervisor may have been killed before it wrote which fleet it started: the journal is asked.
    """
    from tradewind.fleet.journal import FleetJournal

    purpose = purpose_of(state.id)
    found = tuple(each for each in FleetJournal(control.store.state_dir).records() if each.purpose == purpose)
    ledger = _with_launched(control, state.ledger, found)
    return replace(state, ledger=ledger, fleets=tuple(each.id for each in found)).at(time.time())


def end_remains(control: JobControl, state: AccelerationState) -> AccelerationState:
    """End all fleets of a killed supervisor; return the state with their end. Raises the error of a failed end."""
    from tradewind.engine.fleets import Fleets

    if state.fleets:
        for end in Fleets(control.store, control.gateway).end(state.fleets):
            if end.error is not None:
                raise end.error
    now_s = time.time()
    return replace(state, ledger=state.ledger.ended(now_s), updated_unix_s=now_s, fleets=()).at(now_s)


def _with_launched(control: JobControl, ledger: Ledger, fleets: Sequence[FleetRecord]) -> Ledger:
    """Return the ledger with the machines of the journal that it lacks: its owner was killed before it wrote."""
    from tradewind.fleet.journal import FleetJournal

    journal, known = FleetJournal(control.store.state_dir), {(use.fleet, use.name) for use in ledger.machines}
    missing = [
        replace(MachineUse.of(1, each.id, name, region, began_s, price), ended_s=ended_s)
        for each in fleets
        for name, began_s, ended_s in journal.lives(each.id)
        if (each.id, name) not in known
        for region in (each.machines.get(name, ""),)
        for price in (ledger.prices.machines.get(region, MachinePrice(0.0)),)
    ]
    return replace(ledger, machines=(*ledger.machines, *missing))
