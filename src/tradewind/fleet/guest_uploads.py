"""The unfinished uploads of a guest that sends, as the service knows them.

The guest's lead keeps the journal, but cannot reach the store of the destination. So its client reports the keys, and
the service keeps them in the job's folder. If the job is cancelled, the service aborts those that it finds, even
without the guest. If another host has finished the job, it aborts those that the first one has left: a host resumes
only the uploads of its own journal, so keys are kept for each journal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tradewind.errors import TradewindError
from tradewind.model.files import open_private

__all__ = ["KEYS_MAX", "UPLOADS_FILE", "KeptUploads", "UploadsFull", "forget_uploads", "kept_uploads", "left_uploads"]

#: File in the job's folder: the journal that has reported last, and for each journal the keys of its unfinished uploads
#: with the time since which the store may have them [Unix ms].
UPLOADS_FILE = "uploads.json"
#: Maximum number of keys that are kept, of all journals. A report has at most 1,000.
KEYS_MAX = 10_000
#: Journal of the keys that an earlier version has kept.
UNNAMED = "earlier"

#: Keys of unfinished uploads with the times since which they may exist [Unix ms], by journal.
Journals = dict[str, dict[str, int]]


class UploadsFull(TradewindError):
    """The hosts of a job have left too many unfinished uploads to keep a further one in mind."""


def kept_uploads(folder: str) -> dict[str, int]:
    """Return the keys of a job's unfinished uploads and the times since which they may exist [Unix ms]."""
    return _earliest(_read(folder)[1].values())


def left_uploads(folder: str) -> dict[str, int]:
    """Return those of `kept_uploads` that the journal which reported last does not know."""
    latest, journals = _read(folder)
    return _earliest(keys for journal, keys in journals.items() if journal != latest)


def forget_uploads(folder: str) -> None:
    """Forget the uploads of a job: none is unfinished any more. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, UPLOADS_FILE))


class KeptUploads:
    """The uploads of one job, in one run that began at `began_unix_ms` by this machine's clock.

    `lead` is the document of the job's lead: it names the keys that the job may write.
    """

    def __init__(self, folder: str, lead: Mapping[str, Any], began_unix_ms: int) -> None:
        self._path, self._began_unix_ms = os.path.join(folder, UPLOADS_FILE), began_unix_ms
        self._key: str = lead["targets"][0]["key"]
        self._is_object = lead["selection"]["kind"] == "object"
        self._latest, self._journals = _read(folder)

    def keep(self, keys: Collection[str], journal: str | None) -> None:
        """Replace the keys of a journal by those that it has now, as far as the job may write them.

        Those of other journals stay. A client that names no journal may have a new one in each run. Raises OSError;
        UploadsFull if all journals have more than KEYS_MAX.
        """
        latest = journal or f"run-{self._began_unix_ms}"
        before = self._journals.get(latest, {})
        now = {key: before.get(key, self._began_unix_ms) for key in keys if self._may_be_written(key)}
        journals = {**self._journals, latest: now}
        if now and sum(map(len, journals.values())) > KEYS_MAX:
            raise UploadsFull("the hosts of this job have left too many unfinished uploads", hint="cancel the job")
        journals = {name: kept for name, kept in journals.items() if kept or name == latest}
        if (latest, journals) == (self._latest, self._journals):
            return
        fresh = f"{self._path}.new"
        with open(fresh, "w", encoding="utf-8", opener=open_private) as file:
            json.dump({"latest": latest, "journals": journals}, file)
        os.replace(fresh, self._path)
        self._latest, self._journals = latest, journals

    def _may_be_written(self, key: str) -> bool:
        return key == self._key if self._is_object else key.startswith(self._key)


def _read(folder: str) -> tuple[str, Journals]:
    """Return the journal that has reported last, and the keys of each; none if the file is missing or damaged."""
    try:
        with open(os.path.join(folder, UPLOADS_FILE), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return "", {}
    if "journals" not in found:  # An earlier version did not tell journals apart.
        return "", {UNNAMED: found}
    return found["latest"], found["journals"]


def _earliest(kept: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the keys of several journals, each with its earliest time."""
    found: dict[str, int] = {}
    for keys in kept:
        for key, since_ms in keys.items():
            found[key] = min(since_ms, found.get(key, since_ms))
    return found
