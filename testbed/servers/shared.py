"""One server for all workers of a test run: the first worker starts it, and stops it when no other one uses it."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.servers.process import Server


@contextmanager
def shared(start: Callable[[], Server], folder: Path) -> Iterator[Server]:
    """Yield the server that ``start`` starts. All processes with the same ``folder`` share it while it runs.

    Processes cannot deadlock, because each ends its servers in the reverse order of acquiring them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    card = folder / f"{start.__name__}.json"
    with card.with_suffix(".lock").open("w") as lock, card.with_suffix(".users").open("w") as users:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if card.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            server = _read(card)
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield server
            return
        with start() as server:
            _write(card, server)
            fcntl.flock(lock, fcntl.LOCK_UN)
            try:
                yield server
            finally:
                # From now on, a process that needs the server starts another one.
                fcntl.flock(lock, fcntl.LOCK_EX)
                card.unlink()
                fcntl.flock(lock, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX)


def _write(card: Path, server: Server) -> None:
    fields = {field.name: getattr(server, field.name) for field in dataclasses.fields(server)}
    card.write_text(json.dumps({**fields, "process": None}, default=str), encoding="utf-8")


def _read(card: Path) -> Server:
    fields = json.loads(card.read_text(encoding="utf-8"))
    ca_file = fields["ca_file"] and Path(fields["ca_file"])
    return Server(**{**fields, "folder": Path(fields["folder"]), "ca_file": ca_file})
