"""A move that leaves out directories, once it has begun to delete sources."""

from __future__ import annotations

import os
from contextlib import closing

from tradewind.engine.jobs import JOURNAL_FILE
from tradewind.model.job import JobSpec
from tradewind.model.records import replace

__all__ = ["keeping_moved_copies"]


def keeping_moved_copies(spec: JobSpec) -> JobSpec:
    """Return the job with which a lead resumes: it replaces no copy whose source is gone.

    Of a flat move, an object that is new in another directory may have the name of a copy whose source was deleted.
    Nothing shows that any more, so from then on the job replaces nothing. What it skips keeps its source.
    """
    if spec.resume and spec.flatten and spec.delete_source and _has_deleted(spec):
        return replace(spec, compare="existing")
    return spec


def _has_deleted(spec: JobSpec) -> bool:
    """Return whether a run of the job may have deleted sources. The lead says why if its journal cannot be read."""
    import sqlite3

    path = os.path.join(spec.state_dir or "", JOURNAL_FILE)
    if spec.state_dir is None or not os.path.exists(path):
        return False
    try:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT 1 FROM deletion").fetchone() is not None
    except sqlite3.Error:
        return True
