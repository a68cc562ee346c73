"""Start times of machines: recorded by phase, and learned by region and type."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.fleet.worlds import World
from tradewind.fleet.boots import BootBook, BootKind
from tradewind.fleet.fleet_records import Attempt
from tradewind.fleet.journal import FleetJournal
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


def test_the_median_of_each_phase_of_the_last_starts_is_learned(tmp_path: Path) -> None:
    journal = FleetJournal(tmp_path)
    for number, took_s in enumerate((500.0, *(30.0 + n for n in range(20)))):
        add_boot(journal, f"f-{number:02}", "aws:a", "m5", {"m": took_s}, accepted_s=number / 10)
    add_boot(journal, "g", "aws:b", "m5", {"m": 7.0})
    usual = BootBook(journal).usual()
    assert set(usual) == {BootKind("aws", "aws:a", "m5"), BootKind("aws", "aws:b", "m5")}
    often, once = (usual[BootKind("aws", region, "m5")] for region in ("aws:a", "aws:b"))
    assert (often.count, once.count) == (20, 1)
    assert often.phases_s == pytest.approx({"accepted": 1.1, "enrolled": 40.0})
    assert often.moves_s == pytest.approx(40.0) and once.moves_s == pytest.approx(7.0)
    assert str(often.origin) == "learned, 20 earlier starts, accepted after 1.1 s, enrolled 40.0 s"


def test_a_machine_says_when_it_began_to_run_its_boot_script(tmp_path: Path) -> None:
    journal = FleetJournal(tmp_path)
    journal.open("f", "a test", {"kind": "aws"}, {"m": "aws:a"})
    journal.launched("f", "m", "aws:a")
    began_s = time.time()
    journal.database.write("UPDATE machines SET launched_unix_s = ?", (began_s - 30.0,))
    journal.ready("f", "m", 600.0, booted_ago_s=10.0)
    (boot,) = BootBook(journal).of_fleet("f")
    assert boot.phases_s == pytest.approx({"booted": 20.0, "enrolled": 30.0}, abs=5.0)
    (usual,) = BootBook(journal).usual().values()
    assert str(usual).startswith("booted 2") and ", enrolled 3" in str(usual)


def test_machines_wait_for_the_slowest_of_their_fleet_and_that_is_not_their_own_start(tmp_path: Path) -> None:
    """The first byte is 2 s after the last machine answers. A machine that joins later does not count."""
    journal = FleetJournal(tmp_path)
    add_boot(journal, "f", "aws:a", "m5", {"fast": 20.0, "slow": 60.0, "late": 90.0}, moved_s=62.0)
    fast, slow, late = BootBook(journal).of_fleet("f")
    assert fast.phases_s["first_byte"] == pytest.approx(62.0, abs=1.0)
    assert fast.own_phases_s["first_byte"] == pytest.approx(22.0, abs=1.0)
    assert slow.own_phases_s["first_byte"] == pytest.approx(62.0, abs=1.0)
    assert "first_byte" not in late.phases_s


def test_the_wait_for_a_long_list_is_no_part_of_a_start(tmp_path: Path) -> None:
    """The median of the first byte is shown, and plans use the least time that bytes needed to begin."""
    journal = FleetJournal(tmp_path)
    for number, begins_s in enumerate((2.0, 300.0, 400.0)):
        add_boot(journal, f"f-{number}", "aws:a", "m5", {"m": 30.0}, moved_s=30.0 + begins_s)
    (usual,) = BootBook(journal).usual().values()
    assert usual.phases_s["first_byte"] == pytest.approx(330.0, abs=1.0)
    assert usual.moves_s == pytest.approx(32.0, abs=1.0)


def test_an_emulated_cloud_does_not_teach_how_machines_of_the_real_one_start(tmp_path: Path) -> None:
    """Regions of a fleet over several providers belong to one of them each."""
    journal = FleetJournal(tmp_path)
    add_boot(journal, "f", "aws:a", "m5", {"m": 0.2}, provider={"kind": "sky"})
    member = {"name": "aws", "regions": ["aws:a"], "provider": {"kind": "aws"}}
    add_boot(journal, "g", "aws:a", "m5", {"m": 40.0}, provider={"kind": "mixed", "members": [member]})
    add_boot(journal, "h", "aws:a", "m5", {"m": 9.0}, provider="damaged")
    found = {kind.provider: usual.moves_s for kind, usual in BootBook(journal).usual().items()}
    assert found == pytest.approx({"sky": 0.2, "aws": 40.0, "": 9.0})


def add_boot(
    journal: FleetJournal,
    fleet: str,
    region: str,
    kind: str,
    took_s: dict[str, float],
    *,
    accepted_s: float = 0.0,
    moved_s: float | None = None,
    provider: object = None,
) -> None:
    """Record a fleet whose machines answer after `took_s`, by name. Its first byte moves after `moved_s`."""
    journal.open(fleet, "a test", {"kind": "aws"}, dict.fromkeys(took_s, region))
    if provider is not None:
        journal.database.write("UPDATE fleets SET provider = ? WHERE id = ?", (json.dumps(provider), fleet))
    for name, ready_s in took_s.items():
        journal.launched(fleet, name, region)
        where = (fleet, name)
        ((began_s,),) = journal.database.rows(
            "SELECT launched_unix_s FROM machines WHERE fleet = ? AND name = ?", where
        )
        journal.record_attempt(fleet, Attempt(began_s + accepted_s, name, region, "launched", type=kind))
        moved_unix_s = None if moved_s is None or ready_s > moved_s else began_s + moved_s
        journal.database.write(
            "UPDATE machines SET ready_unix_s = ?, first_byte_unix_s = ? WHERE fleet = ? AND name = ?",
            (began_s + ready_s, moved_unix_s, *where),
        )
    journal.close(fleet)
