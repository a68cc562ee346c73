"""Start times of machines: recorded by phase, and learned by region and type."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fleet.worlds import World
from tradewind.fleet.boots import BootBook
from tradewind.fleet.journal import Attempt, FleetJournal
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.gateway.binary import find_gateway


def test_the_start_of_each_machine_is_recorded_by_phase(tmp_path: Path) -> None:
    """The lead at home is no machine."""
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    world = World(journal, make_provider(LOCAL, binary, journal), ("site:a", "site:b"), binary)
    before_s = time.time()
    fleet = world.fleet()
    fleet.moved(["home", "source"])
    fleet.moved(["source"])
    fleet.close()
    book = BootBook(journal)
    boots = book.of_fleet(fleet.id)
    assert [(boot.name, boot.region) for boot in boots] == [("source", "site:a"), ("sink", "site:b")]
    for boot in boots:
        assert boot.accepted_unix_s is not None and boot.running_unix_s is not None
        assert before_s <= boot.ordered_unix_s <= boot.accepted_unix_s <= boot.running_unix_s <= boot.ready_unix_s
    assert boots[0].first_byte_unix_s is not None and boots[1].first_byte_unix_s is None
    assert boots[0].ready_unix_s <= boots[0].first_byte_unix_s <= time.time()
    assert list(boots[0].phases_s) == ["accepted", "running", "enrolled", "first_byte"]
    assert book.of_fleet("another") == []
    assert book.of_purpose("a test") == boots and book.of_purpose("another") == []


def test_the_median_of_the_last_starts_is_learned(tmp_path: Path) -> None:
    journal = FleetJournal(tmp_path)
    for number, took_s in enumerate((500.0, *(30.0 + n for n in range(20)))):
        add_boot(journal, f"f-{number:02}", "aws:a", "m5", took_s)
    add_boot(journal, "g", "aws:b", "m5", 7.0)
    assert BootBook(journal).times_s() == {("aws:a", "m5"): 40.0, ("aws:b", "m5"): 7.0}


def add_boot(journal: FleetJournal, fleet: str, region: str, kind: str, took_s: float) -> None:
    journal.open(fleet, "a test", {"kind": "local"}, {"m": region})
    journal.launched(fleet, "m", region)
    (row,) = journal.database.rows("SELECT launched_unix_s FROM machines WHERE fleet = ?", (fleet,))
    journal.record_attempt(fleet, Attempt(row[0] + 1.0, "m", region, "launched", type=kind))
    journal.database.write("UPDATE machines SET ready_unix_s = ? WHERE fleet = ?", (row[0] + took_s, fleet))
    journal.close(fleet)
