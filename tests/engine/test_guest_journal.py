"""Reports of a guest that sends: the uploads of its journal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tradewind.engine.guest_host import JOURNAL_ID_FILE, GuestHost
from tradewind.engine.jobs import JOURNAL_FILE


def test_uploads_of_a_journal_that_cannot_be_read_are_not_reported_as_none(tmp_path: Path) -> None:
    host = object.__new__(GuestHost)
    host._folder = tmp_path
    journal = tmp_path / "journal" / JOURNAL_FILE
    assert host.unfinished_uploads() is None
    journal.parent.mkdir()
    with sqlite3.connect(journal) as connection:
        connection.execute("CREATE TABLE upload (target_key TEXT)")
    assert host.unfinished_uploads() == []
    connection.execute("INSERT INTO upload VALUES ('b'), ('a'), ('b')")
    connection.commit()
    assert host.unfinished_uploads() == ["a", "b"]
    connection.close()
    journal.write_bytes(b"no database" * 100)
    assert host.unfinished_uploads() is None


def test_an_id_that_could_not_be_written_is_none(tmp_path: Path) -> None:
    """The next run writes it again. The service would refuse each report with an empty one."""
    host = object.__new__(GuestHost)
    host._folder = tmp_path
    assert host.journal_id() is None
    kept = tmp_path / JOURNAL_ID_FILE
    kept.parent.mkdir()
    kept.touch()
    assert host.journal_id() is None
    kept.write_text("12ab")
    assert host.journal_id() == "12ab"
