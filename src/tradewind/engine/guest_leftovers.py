"""Aborts the uploads that a job with a guest has left. The journal of the job is on the guest's host.

The `cancel` task of the gateway program aborts what a journal names. Here it gets a journal with only the
intents. It then looks for uploads of exactly these keys that were opened since, as after a crash of the lead.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from tradewind.engine.jobs import JOURNAL_FILE
from tradewind.errors import GatewayError
from tradewind.gateway.task import Surroundings, run_task

__all__ = ["abort_leftovers"]

#: An intent of the journal (crates/gateway, journal/schema.rs): only the key and the time matter for an abort.
INTENT = """
    INSERT INTO upload (target, target_key, source_key, size_bytes, fingerprint, chunk_bytes, options, intent_unix_ms)
    VALUES (0, ?, ?, 0, 0, 0, '{"attributes": {"metadata": {}}, "tags": {}}', ?)
"""


def abort_leftovers(
    gateway: str, folder: str, stores: Sequence[Mapping[str, Any]], around: Surroundings, uploads: Mapping[str, int]
) -> None:
    """Abort uploads that the guests of a job have reported, by their keys and times [Unix ms].

    `folder` is the job's. Raises GatewayError if one cannot be aborted.
    """
    import sqlite3

    if not uploads:
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="cancel-") as scratch:
        task = {"task": "cancel", "state_dir": scratch, "stores": stores}
        journal = os.path.join(scratch, JOURNAL_FILE)
        # The program creates the tables in an empty file, because only it knows all of them.
        os.close(os.open(journal, os.O_CREAT | os.O_WRONLY, 0o600))
        _run(gateway, task, around)
        try:
            with closing(sqlite3.connect(journal)) as connection, connection:
                connection.executemany(INTENT, [(key, key, since_ms) for key, since_ms in uploads.items()])
        except sqlite3.Error as error:
            raise GatewayError(f"the uploads to abort cannot be listed: {error}") from error
        _run(gateway, task, around)


def _run(gateway: str, task: dict[str, Any], around: Surroundings) -> None:
    code = run_task(gateway, task, around, mute=True, quiet=True)
    if code != 0:
        raise GatewayError(f"unfinished uploads could not be aborted (exit code {code})")
