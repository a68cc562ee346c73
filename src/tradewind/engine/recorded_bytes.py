"""The bytes that the journal of a job's lead records as moved."""

from __future__ import annotations

import os
from contextlib import closing, suppress

from tradewind.engine.jobs import JOURNAL_FILE

__all__ = ["recorded_bytes"]

#: Objects that are proven, and the parts of uploads that a resumed job continues (crates/gateway, journal/schema.rs).
RECORDED = """
    SELECT (SELECT coalesce(sum(size_bytes), 0) FROM done)
         + (SELECT coalesce(sum(part.size_bytes), 0) FROM part JOIN upload ON upload.id = part.upload
            WHERE upload.superseded = 0)
"""


def recorded_bytes(folder: str) -> int | None:
    """Return the bytes that no later run of a job sends again, each once, over all its runs.

    `folder` is the job's. None if the journal cannot be read, or is on the host of a guest that sends.
    """
    import sqlite3

    path = os.path.join(folder, JOURNAL_FILE)
    if not os.path.exists(path):
        return None
    # On a full disk, SQLite cannot create the file of its shared memory. It needs none if it has the journal alone.
    for locking in ("NORMAL", "EXCLUSIVE"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA locking_mode = {locking}")
            return int(connection.execute(RECORDED).fetchone()[0])
    return None
