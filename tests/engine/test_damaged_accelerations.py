"""Accelerations whose records are damaged, or whose fleets were ended by other commands.

None hides another one, a machine that may run, or a part of its cost.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tradewind.engine.acceleration_remains import purpose_of
from tradewind.engine.accelerations import Accelerations
from tradewind.engine.engine import Engine
from tradewind.errors import JobUnreadable, TradewindError, UsageError
from tradewind.fleet.journal import FleetJournal
from tradewind.model.acceleration import AccelerationState, FlowState, ProxyState
from tradewind.model.ledger import EdgePrice, JobPrices, Ledger, MachinePrice, MachineUse, RunCount
from tradewind.model.records import replace
from tradewind.render.acceleration import acceleration_lines
from tradewind.render.acceleration_metrics import prometheus_lines

LOCAL = {"kind": "local"}
PRICES = JobPrices({"site:a": MachinePrice(0.01)})


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Accelerations]:
    """Two accelerations whose supervisors were killed before they wrote which machines they started."""
    with Engine(state_dir=str(tmp_path)) as engine:
        book, journal = Accelerations(engine.control), FleetJournal(tmp_path)
        for name in ("one", "two"):
            book.make(name, "")
            book.write(AccelerationState(name, "running", 0.0, 0.0, ledger=Ledger(PRICES)))
            fleet = fleet_of(name)
            journal.open(fleet, purpose_of(name), LOCAL, {"p": "site:a"})
            journal.launched(fleet, "p", "site:a", 600)
            journal.give_back(fleet)
        yield book


def fleet_of(name: str) -> str:
    return f"fleet-of-{name}"


def journal_of(book: Accelerations) -> FleetJournal:
    return FleetJournal(book.folder.parent)


def damage(book: Accelerations, table: str, column: str, value: Any) -> None:
    """Damage the record of the fleet of `one`."""
    key = "id" if table == "fleets" else "fleet"
    journal_of(book).database.write(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, fleet_of("one")))


def shown(book: Accelerations) -> tuple[list[str], list[TradewindError]]:
    errors: list[TradewindError] = []
    return [state.id for state in book.states(errors.append)], errors


@pytest.mark.parametrize(
    ("column", "value"), [("provider", "{}"), ("wanted", '{"p": 1}'), ("owner", "x"), ("heartbeat_unix_s", "x")]
)
def test_a_fleet_whose_record_is_damaged_may_still_run(book: Accelerations, column: str, value: str) -> None:
    damage(book, "fleets", column, value)
    assert shown(book) == (["one", "two"], [])
    assert book.state("one").fleets == (fleet_of("one"),)
    for attempt in range(2):
        with pytest.raises(TradewindError, match="its record cannot be read"):
            book.down("one", 0.0)
        assert book.state("one").phase == "failed", f"attempt {attempt}: its machines may run"
    assert book.down("two", 0.0).phase == "ended"


@pytest.mark.parametrize(("column", "value"), [("launched_unix_s", "x"), ("ended_unix_s", 1e300), ("name", b"\xff")])
def test_a_damaged_machine_hides_no_acceleration_and_its_cost_is_unknown(
    book: Accelerations, column: str, value: Any
) -> None:
    damage(book, "machines", column, value)
    assert shown(book) == (["one", "two"], [])
    assert book.state("two").cost_error is None
    for state in (book.state("one"), book.down("one", 0.0), book.state("one")):
        assert f"cost unknown: the record of fleet {fleet_of('one')} is damaged" in "\n".join(acceleration_lines(state))
        assert state.document()["machines_usd"] is None and "usd{" not in "\n".join(prometheus_lines([state]))
    assert (book.state("one").phase, book.state("one").fleets) == ("ended", ())


def test_a_ceiling_cannot_be_kept_without_the_cost(book: Accelerations) -> None:
    book.write(replace(book.state("one"), usd_max=1.0, phase="running"))
    damage(book, "machines", "launched_unix_s", "x")
    with pytest.raises(UsageError, match="cost of acceleration one is unknown"), book.taken_over("one"):
        raise AssertionError("it was taken over")
    assert book.state("one").fleets, "no machine has ended"


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.01", "0.00"), ("site:a", "site:b"), ('"one"', '"two"'), ('"one"', '"onf"'), ("running", "runninh")],
)
def test_a_flipped_byte_of_a_state_is_noticed(book: Accelerations, old: str, new: str) -> None:
    """Taken as it is, it would name another acceleration, whose machines `down` would end, or another cost."""
    path = book.folder / "one" / "state.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    states, (error,) = shown(book)
    assert states == ["two"] and str(path) in str(error)
    ended = book.down("one", 0.0)
    assert (ended.id, ended.phase, ended.fleets) == ("one", "ended", ())
    assert "cost unknown: its state was damaged" in "\n".join(acceleration_lines(ended))
    assert book.state("two").fleets == (fleet_of("two"),)
    assert book.state("one").document()["egress_usd"] is None, "it stays unknown"


def test_a_state_of_another_acceleration_is_not_taken_for_its_own(book: Accelerations) -> None:
    """As a copy of a folder, or a state of an older version without a digest, may have it."""
    document = json.loads((book.folder / "two" / "state.json").read_text())
    for content in (document, {key: value for key, value in document.items() if key != "digest"}):
        (book.folder / "one" / "state.json").write_text(json.dumps(content))
        with pytest.raises(JobUnreadable, match="it is the state of acceleration two"):
            book.state("one")


def test_the_cost_of_machines_counts_although_another_command_has_ended_their_fleet(book: Accelerations) -> None:
    """`fleet down` and `fleet sweep` close its record."""
    journal = journal_of(book)
    damage(book, "machines", "launched_unix_s", journal.unix_s() - 100)
    journal.ended(fleet_of("one"), {"p"})
    journal.close(fleet_of("one"))
    assert book.state("one").machines_usd == pytest.approx(1.0, rel=0.1)
    ended = book.down("one", 0.0)
    (line,) = ended.lines
    assert (ended.phase, ended.fleets, line.what) == ("ended", (), "p in site:a")
    assert line.quantity == pytest.approx(100, rel=0.1) and ended.machines_usd == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("region", [None, "site:b"])
def test_flows_of_other_hosts_go_on_after_a_supervisor_was_killed(book: Accelerations, region: str | None) -> None:
    """Nobody counts what their proxies send then. Flows of this machine have ended with its gateway."""
    killed_s = time.time() - 100
    flow = FlowState("f", "192.0.2.1:80", "127.0.0.1:1", "forward", ("p",), ("p",), 1.0, 1.0, region=region)
    proxy = ProxyState("p", "site:a", "healthy", usd=2.0, bytes_per_s=5e6)
    idle = ProxyState("q", "site:a", "healthy")
    prices = replace(PRICES, routes={"p": (EdgePrice("p in site:a", 1.0),)})
    machines = (MachineUse(1, fleet_of("one"), "p", "site:a", killed_s - 10),)
    runs = (RunCount(1, 2.0, route_bytes={"p": 2_000_000_000}),)
    ledger = Ledger(prices, None, machines, runs, heartbeat_s=killed_s, alive_s_max=60.0)
    book.write(AccelerationState("one", "running", 0.0, killed_s, (flow,), (proxy, idle), ledger=ledger))
    # Its machine has ended with its lease: it sent for 60 s more.
    expected_usd = 2.0 if region is None else 2.3
    for state in (book.state("one"), book.state("one"), book.down("one", 0.0), book.state("one")):
        assert state.egress_usd == pytest.approx(expected_usd) == state.proxies[0].usd
        assert state.assumed_s == pytest.approx(0.0 if region is None else 60.0)
        assert ("nobody counted egress" in "\n".join(acceleration_lines(state))) == (region is not None)
    assert book.state("one").phase == "ended"


def test_a_damaged_lock_hides_no_other_acceleration(book: Accelerations) -> None:
    """Without it, nobody knows whether a supervisor runs, so nothing is ended."""
    lock = book.folder / "one" / "lock"
    lock.mkdir()
    states, (error,) = shown(book)
    assert states == ["two"] and str(lock) in str(error)
    assert book.one(None).id == "two"
    with pytest.raises(JobUnreadable, match="not a regular file"):
        book.down("one", 0.0)
    assert book.down("two", 0.0).phase == "ended"
    lock.rmdir()
    assert book.state("one").fleets == (fleet_of("one"),)
