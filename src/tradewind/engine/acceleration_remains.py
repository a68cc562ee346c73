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
from tradewind.model.units import BYTES_PER_GB

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.fleet.fleet_records import MachineLife

__all__ = ["end_remains", "purpose_of", "with_remains"]


def purpose_of(acceleration_id: str) -> str:
    """Return the purpose under which the journal records the fleets of an acceleration."""
    return f"acceleration {acceleration_id}"


def with_remains(control: JobControl, state: AccelerationState, seen_unix_s: float | None = None) -> AccelerationState:
    """Return the state with its recorded fleets, and their machines in the ledger. Raises StateError.

    A supervisor may have been killed before it wrote which machines it started, and other commands may have ended them
    since: the journal is asked. If it is damaged there, the cost is not known. `seen_unix_s` is the time of the last
    state of a killed supervisor: nobody has counted egress since.
    """
    from tradewind.fleet.journal import FleetJournal

    journal, purpose = FleetJournal(control.store.state_dir), purpose_of(state.id)
    ledger, cost_error = state.ledger, state.cost_error
    try:
        ledger = _with_lives(ledger, journal.lives_of(purpose))
    except StateError as error:
        cost_error = str(error)
    state = replace(state, ledger=ledger, fleets=tuple(journal.open_of(purpose)), cost_error=cost_error)
    return (state if seen_unix_s is None else _with_uncounted(state, seen_unix_s)).at(time.time())


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


def _with_uncounted(state: AccelerationState, seen_unix_s: float) -> AccelerationState:
    """Return the state with the egress that proxies are assumed to have since `seen_unix_s`.

    Flows of this machine have ended with its gateway. Those of other hosts go on until the leases or the machines end.
    """
    if not state.ledger.runs or all(flow.region is None for flow in state.flows):
        return state
    *runs, run = state.ledger.runs
    ends_s = {use.name: state.ledger.end_of(use, time.time()) for use in state.ledger.machines}
    prices = {name: edges[0].usd_per_gb for name, edges in state.ledger.prices.routes.items()}
    proxies, sent, egress_usd, assumed_s = [], dict(run.route_bytes), run.egress_usd, 0.0
    for proxy in state.proxies:
        unseen_s = max(0.0, ends_s.get(proxy.name, 0.0) - seen_unix_s)
        more_bytes = round(proxy.bytes_per_s * unseen_s)
        usd = more_bytes / BYTES_PER_GB * prices.get(proxy.name, 0.0)
        proxies.append(replace(proxy, usd=proxy.usd + usd))
        if more_bytes:
            sent[proxy.name] = sent.get(proxy.name, 0) + more_bytes
            egress_usd, assumed_s = egress_usd + usd, max(assumed_s, unseen_s)
    run = replace(run, egress_usd=egress_usd, route_bytes=sent)
    ledger = replace(state.ledger, runs=(*runs, run))
    return replace(state, ledger=ledger, proxies=tuple(proxies), assumed_s=state.assumed_s + assumed_s)


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
