"""The remains of an acceleration whose supervisor was killed: its fleets, by the journal, and their machines' cost."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tradewind.engine.ledger import without_unlaunched
from tradewind.errors import StateError
from tradewind.model.acceleration import AccelerationState
from tradewind.model.ledger import Ledger, MachinePrice, MachineUse
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.journal import MachineLife

__all__ = ["end_remains", "purpose_of", "with_remains"]


def purpose_of(acceleration_id: str) -> str:
    """Return the purpose under which the journal records the fleets of an acceleration."""
    return f"acceleration {acceleration_id}"


def with_remains(control: JobControl, state: AccelerationState) -> AccelerationState:
    """Return the state with its recorded fleets, and their machines in the ledger. Raises StateError.

    A supervisor may have been killed before it wrote which machines it started, and other commands may have ended them
    since: the journal is asked. If it is damaged there, the cost is not known.
    """
    from tradewind.fleet.journal import FleetJournal

    journal, purpose = FleetJournal(control.store.state_dir), purpose_of(state.id)
    ledger, cost_error = state.ledger, state.cost_error
    try:
        ledger = _with_lives(ledger, journal.lives_of(purpose))
    except StateError as error:
        cost_error = str(error)
    fleets = tuple(journal.open_of(purpose))
    return replace(state, ledger=ledger, fleets=fleets, cost_error=cost_error).at(time.time())


def end_remains(control: JobControl, state: AccelerationState) -> AccelerationState:
    """End all fleets of a killed supervisor; return the state with their end. Raises the error of a failed end."""
    from tradewind.engine.fleets import Fleets
    from tradewind.fleet.journal import FleetJournal

    if state.fleets:
        for end in Fleets(control.store, control.gateway).end(state.fleets):
            if end.error is not None:
                raise end.error
    now_s = time.time()
    # The end has found out which machines were never launched.
    unlaunched = FleetJournal(control.store.state_dir).unlaunched_of(purpose_of(state.id))
    ledger = without_unlaunched(state.ledger, unlaunched).ended(now_s)
    return replace(state, ledger=ledger, updated_unix_s=now_s, fleets=()).at(now_s)


def _with_lives(ledger: Ledger, lives: Iterable[MachineLife]) -> Ledger:
    """Return the ledger with the machines of the journal that it lacks, and with ends that only the journal has."""
    uses: dict[tuple[str, str], list[MachineUse]] = {}
    for use in ledger.machines:
        uses.setdefault((use.fleet, use.name), []).append(use)
    lived: dict[tuple[str, str], list[MachineLife]] = {}
    for life in lives:
        lived.setdefault((life.fleet, life.name), []).append(life)
    ends: dict[MachineUse, float | None] = {}
    missing = []
    for key, each in lived.items():
        known = uses.get(key, [])
        if len(known) <= len(each):  # Otherwise the journal lacks some, and nobody knows which.
            ends.update((use, life.ended_unix_s) for use, life in zip(known, each, strict=False))
        missing += [_use_of(life, ledger) for life in each[len(known) :]]
    machines = [_ended(use, ends.get(use)) for use in ledger.machines]
    return replace(ledger, machines=(*machines, *missing))


def _use_of(life: MachineLife, ledger: Ledger) -> MachineUse:
    price = ledger.prices.machines.get(life.region, MachinePrice(0.0))
    use = MachineUse.of(1, life.fleet, life.name, life.region, life.began_unix_s, price)
    return _ended(use, life.ended_unix_s)


def _ended(use: MachineUse, end_s: float | None) -> MachineUse:
    if use.ended_s is not None or end_s is None:
        return use
    return replace(use, ended_s=max(use.launched_s, end_s))
