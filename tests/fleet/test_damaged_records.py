"""Damaged records of fleets: SQLite returns flipped bytes as they are. No damage hides or keeps another fleet."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from tradewind.engine.fleets import Fleets
from tradewind.engine.job_control import JobControl
from tradewind.engine.orphans import orphaned_fleets
from tradewind.engine.warm import warm_ground
from tradewind.errors import StateError
from tradewind.fleet.boots import BootBook
from tradewind.fleet.fleet_records import Attempt
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.owner import here
from tradewind.fleet.provider import LaunchOrder, Lease
from tradewind.fleet.providers.local import LocalProvider
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine
from tradewind.gateway.binary import find_gateway
from tradewind.model.region import Region
from tradewind.model.sites import Sites

LOCAL = {"kind": "local"}


@pytest.fixture
def journal(tmp_path: Path) -> FleetJournal:
    """A journal with three fleets of killed commands."""
    made = FleetJournal(tmp_path / "state")
    for fleet in ("1-first", "2-damaged", "3-last"):
        made.open(fleet, "a test", LOCAL, {"one": "site:a"})
        made.launched(fleet, "one", "site:a", 600)
        made.ready(fleet, "one", 600)
        made.give_back(fleet)
    return made


def damage(journal: FleetJournal, column: str, value: Any, fleet: str = "2-damaged") -> None:
    journal.database.write(f"UPDATE fleets SET {column} = ? WHERE id = ?", (value, fleet))


def command_of(journal: FleetJournal) -> Command:
    state = journal.folder.parent
    return Command(state.parent / "home", {"TRADEWIND_STATE_DIR": str(state)})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("purpose", b"\xff\xfe"),
        ("provider", "{}"),
        ("provider", '{"kinc": "local"}'),
        ("provider", '{"kind": 7}'),
        ("wanted", '{"one": 1}'),
        ("created_unix_ms", ""),
        ("created_unix_ms", 1e300),
        ("heartbeat_unix_s", "x"),
        ("heartbeat_unix_s", float("inf")),
    ],
)
def test_a_damaged_record_keeps_no_other_fleet(journal: FleetJournal, column: str, value: Any) -> None:
    damage(journal, column, value)
    command = command_of(journal)
    listed = command.run("fleet", "list").expect(1)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["1-first", "3-last"]
    assert listed.stderr.startswith("error: fleet 2-damaged cannot be read: its record cannot be read")
    ended = command.run("fleet", "down").expect(1)
    assert ended.stdout == "1-first: 0 machines ended\n3-last: 0 machines ended\n"
    assert "error: fleet 2-damaged cannot be read: " in ended.stderr and "internal" not in ended.stderr
    assert journal.is_open("2-damaged"), "its machines may run"


def test_a_flipped_bit_does_not_close_a_record(journal: FleetJournal) -> None:
    """In the header of a row, 0 stands for NULL and 8 for the number 0."""
    damage(journal, "closed_unix_s", 0)
    command = command_of(journal)
    assert len(command.run("fleet", "list").expect(0).stdout.splitlines()) == 3
    assert journal.is_open("2-damaged") and journal.intent("2-damaged").machines == {"one": "site:a"}
    assert "2-damaged: 0 machines ended\n" in command.run("fleet", "down").expect(0).stdout
    assert not journal.is_open("2-damaged")


@pytest.mark.parametrize(
    "column, value", [("purpose", b"\xff\xfe"), ("wanted", '{"one": 1}'), ("heartbeat_unix_s", "x")]
)
def test_a_damaged_record_of_processes_that_ended_can_be_forgotten(
    journal: FleetJournal, column: str, value: Any
) -> None:
    damage(journal, column, value)
    command = command_of(journal)
    assert "--forget` then removes the record\n" in command.run("fleet", "list").expect(1).stderr
    done = command.run("fleet", "down", "2-damaged", "--forget").expect(0)
    assert done.stdout == "2-damaged: removed its record; found nothing else of it (asked: this host)\n"
    assert not journal.is_open("2-damaged") and not journal.path("2-damaged").exists()
    assert command.run("fleet", "list").expect(0).stdout.count("\n") == 2


def test_a_record_is_not_forgotten_while_processes_of_its_fleet_run(journal: FleetJournal) -> None:
    fleet = new_fleet_id()  # Of no other test of this host.
    journal.open(fleet, "a test", LOCAL, {"one": "site:a"})
    journal.give_back(fleet)
    damage(journal, "purpose", b"\xff", fleet)
    provider = LocalProvider(find_gateway(), journal.folder)
    (result,) = provider.launch([LaunchOrder(fleet, "one", "site:a", "key", 1, Lease(600, here().label))])
    assert result.machine is not None, result.refusal
    try:
        refused = command_of(journal).run("fleet", "down", fleet, "--forget").expect(1)
        assert f"error: 1 machine of fleet {fleet} still runs on this host\n" in refused.stderr
        assert journal.is_open(fleet)
    finally:
        provider.terminate([result.machine.id])
    command_of(journal).run("fleet", "down", fleet, "--forget").expect(0)


def test_only_a_damaged_record_that_nobody_uses_is_forgotten(journal: FleetJournal) -> None:
    command = command_of(journal)
    assert "can be read" in command.run("fleet", "down", "1-first", "--forget").expect(2).stderr
    command.run("fleet", "down", "no-such-fleet", "--forget").expect(3)
    command.run("fleet", "down", "--forget").expect(2)
    damage(journal, "provider", "{}")
    where = command.run("fleet", "down", "2-damaged", "--forget").expect(2)
    assert "the configuration has no places to ask" in where.stderr
    damage(journal, "provider", json.dumps(LOCAL))
    damage(journal, "purpose", b"\xff")
    assert journal.claim("2-damaged")
    assert "is in use by another process" in command.run("fleet", "down", "2-damaged", "--forget").expect(2).stderr
    journal.give_back("2-damaged")
    foreign = {**here().document(), "host": "0123456789abcdef", "host_name": "far", "boot": "other"}
    damage(journal, "owner", json.dumps(foreign))
    assert "were processes of host far" in command.run("fleet", "down", "2-damaged", "--forget").expect(2).stderr
    assert all(journal.is_open(fleet) for fleet in ("1-first", "2-damaged", "3-last"))


@pytest.mark.parametrize("kind", ["sky", "ssh", "mixed", "kubernetes"])
def test_a_provider_without_its_settings_keeps_no_other_fleet(journal: FleetJournal, kind: str) -> None:
    """As an older version may have written it, or a newer one."""
    damage(journal, "provider", json.dumps({"kind": kind}))
    command = command_of(journal)
    assert f"2-damaged  {kind}" in command.run("fleet", "list").expect(0).stdout
    ended = command.run("fleet", "down").expect(1)
    assert ended.stdout == "1-first: 0 machines ended\n3-last: 0 machines ended\n"
    assert "error: fleet 2-damaged could not be ended: " in ended.stderr and "internal" not in ended.stderr
    assert journal.is_open("2-damaged"), "its machines may run"


@pytest.mark.parametrize("old, new", [("one.example", "ond.example"), ("site:a", "site:b"), ("2-damaged", "2-damagee")])
def test_no_fleet_is_looked_for_at_another_place_than_its_own(
    tmp_path: Path, journal: FleetJournal, old: str, new: str
) -> None:
    """There are none of its machines, so it would be taken for ended, and forgotten."""
    document = {"kind": "ssh", "hosts": [{"name": "one.example", "region": "site:a"}], "ssh_config": None}
    journal.close("2-damaged")
    journal.database.write("DELETE FROM fleets WHERE id = '2-damaged'")
    journal.open("2-damaged", "a test", document, {"one": "site:a"})
    journal.give_back("2-damaged")
    assert journal.load("2-damaged").provider == document
    journal.database.write(
        "UPDATE fleets SET id = replace(id, ?, ?), provider = replace(provider, ?, ?)", 2 * (old, new)
    )
    (journal.folder / "2-damaged").rename(journal.folder / "2-damaged".replace(old, new))
    (found,) = journal.unreadable()
    assert "its provider is not the one that was recorded" in found.because
    assert {record.id for record in journal.records()} == {"1-first", "3-last"}


def test_a_record_of_an_older_version_has_no_digest(journal: FleetJournal) -> None:
    damage(journal, "provider", json.dumps(LOCAL))
    assert journal.load("2-damaged").provider == LOCAL


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("machines", ""),
        ("machines", "[1]"),
        ("machines", '{"one": 1}'),
        ("machines", '{"one": ["site:a", null, false, "x", "", 0, 0, null, 0]}'),
        ("idle_s", "x"),
        ("idle_s", 601),
        ("ends_unix_s", 1e300),
        ("ends_unix_s", 2e9),
    ],
)
def test_a_damaged_warm_fleet_is_ended_and_not_used(journal: FleetJournal, column: str, value: Any) -> None:
    keeping = Keeping(600, time.time() + 6000, {"one": WarmMachine("site:a", usd_per_s=0.01)})
    WarmBook(journal).keep("2-damaged", keeping)
    assert WarmBook(journal).keeping("2-damaged") == keeping
    journal.database.write(f"UPDATE warm_fleets SET {column} = ?", (value,))
    control = JobControl(state_dir=str(journal.folder.parent))
    assert warm_ground(control, Sites(), [Region.parse("site:a")], None) is None
    ended = command_of(journal).run("fleet", "down", "--all").expect(0)
    assert ended.stdout.count(": 0 machines ended\n") == 3, ended.stderr
    assert not journal.is_open("2-damaged")


def test_another_price_of_a_warm_machine_is_noticed(journal: FleetJournal) -> None:
    """A record of an older version has no digest."""
    keeping = Keeping(600, time.time() + 6000, {"one": WarmMachine("site:a", usd_per_s=0.01)})
    book = WarmBook(journal)
    book.keep("2-damaged", keeping)
    journal.database.write("UPDATE warm_fleets SET machines = replace(machines, '0.01', '0.00')")
    with pytest.raises(StateError, match="the record of warm fleet 2-damaged is damaged: it is not what was recorded"):
        book.keeping("2-damaged")
    journal.database.write("UPDATE warm_fleets SET machines = json_remove(machines, '$.digest')")
    found = book.keeping("2-damaged")
    assert found is not None and found.machines["one"].usd_per_s == 0.0


@pytest.mark.parametrize("value", ["", b"\xff", 1e300, float("inf")])
def test_a_damaged_lease_or_start_hides_no_other(journal: FleetJournal, value: Any) -> None:
    """Leases and starts are shown and learned from. The machines are those that the provider lists."""
    journal.record_attempt("2-damaged", Attempt(time.time(), "one", "site:a", "launched"))
    journal.database.write("UPDATE leases SET lapses_unix_s = ? WHERE fleet = '2-damaged'", (value,))
    journal.database.write("UPDATE machines SET booted_unix_s = ? WHERE fleet = '2-damaged'", (value,))
    journal.database.write("UPDATE machines SET launched_unix_s = ? WHERE fleet = '1-first'", (value,))
    command = command_of(journal)
    assert command.run("fleet", "list").expect(0).stdout.count("abandoned") == 3
    assert command.run("fleet", "explain", "2-damaged").expect(0).stderr == ""
    assert sum(usual.count for usual in BootBook(journal).usual().values()) == 1
    assert orphaned_fleets(JobControl(state_dir=str(journal.folder.parent))) == []
    assert [
        end.error
        for end in Fleets(JobControl(state_dir=str(journal.folder.parent)).store, find_gateway()).end_abandoned()
    ] == 3 * [None]


def test_a_damaged_attempt_is_one_line(journal: FleetJournal) -> None:
    journal.record_attempt("2-damaged", Attempt(time.time(), "one", "site:a", "launched"))
    journal.database.write("UPDATE attempts SET unix_s = 'x'")
    explained = command_of(journal).run("fleet", "explain", "2-damaged")
    assert explained.code not in (0, 99)
    assert (
        explained.stderr.splitlines()[0] == "error: the record of fleet 2-damaged is damaged: value 1 of 8 is damaged"
    )
