"""The unfinished uploads of a guest that sends, as the service knows them.

The guest's lead keeps the journal, but cannot reach the store of the destination. So its client reports the keys, and
the service keeps them in the job's folder. If the job is cancelled, the service aborts those that it finds, even
without the guest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.model.files import open_private

__all__ = ["UPLOADS_FILE", "UPLOADS_MAX", "KeptUploads", "kept_uploads"]

#: File in the job's folder: for each key, the time since which the store may have an upload [Unix ms].
UPLOADS_FILE = "uploads.json"
#: Maximum number of keys that are kept. A report has at most as many.
UPLOADS_MAX = 1_000


def kept_uploads(folder: str) -> dict[str, int]:
    """Return the keys of a job's unfinished uploads and the times since which they may exist [Unix ms]."""
    try:
        with open(os.path.join(folder, UPLOADS_FILE), encoding="utf-8") as file:
            found: dict[str, int] = json.load(file)
            return found
    except (OSError, ValueError):
        return {}


class KeptUploads:
    """The uploads of one job, in one run that began at `began_unix_ms` by this machine's clock.

    `lead` is the document of the job's lead: it names the keys that the job may write.
    """

    def __init__(self, folder: str, lead: Mapping[str, Any], began_unix_ms: int) -> None:
        self._path, self._began_unix_ms = os.path.join(folder, UPLOADS_FILE), began_unix_ms
        self._key: str = lead["targets"][0]["key"]
        self._is_object = lead["selection"]["kind"] == "object"
        self._kept = kept_uploads(folder)
        #: Keys of earlier runs that this one has not reported: the guest may have another journal now.
        self._earlier = set(self._kept)

    def keep(self, keys: Collection[str]) -> None:
        """Replace the keys by those that the guest reports now, as far as the job may write them. Raises OSError.

        Those of earlier runs stay, at most UPLOADS_MAX with the new ones, until this run reports them: then it knows of
        them, and their end.
        """
        self._earlier -= set(keys)
        now = {key: self._kept.get(key, self._began_unix_ms) for key in keys if self._may_be_written(key)}
        for key in sorted(self._earlier)[: max(0, UPLOADS_MAX - len(now))]:
            now[key] = self._kept[key]
        if now == self._kept:
            return
        fresh = f"{self._path}.new"
        with open(fresh, "w", encoding="utf-8", opener=open_private) as file:
            json.dump(now, file)
        os.replace(fresh, self._path)
        self._kept = now

    def _may_be_written(self, key: str) -> bool:
        return key == self._key if self._is_object else key.startswith(self._key)
