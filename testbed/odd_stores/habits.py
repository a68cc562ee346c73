"""The standing misbehaviour of an odd store: what it always does wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Habits:
    """Each field is one fault. The defaults describe a store that behaves well. Change them at any time."""

    page_keys: int = 1000
    """Largest number of entries on a page of a listing, whatever the client asks for. No fault: keeps tests small."""
    empty_pages: int = 0
    """Pages without entries that precede the first entry; -1: every page is empty, and there is always another one."""

    # Listings: how they continue.
    omits_token: bool = False
    """A truncated page does not say how to continue: no NextContinuationToken, NextMarker or upload markers."""
    claims_end: bool = False
    """A truncated page says that it is the last one, yet it names the token of the next (S3, GCS)."""
    omits_truncated: bool = False
    """Pages do not say whether they are truncated (S3, GCS)."""
    repeats_token: bool = False
    """Every page names the token that leads to the first page."""
    repeats_page: bool = False
    """Ignores the token: every page is the first one, under a new token."""
    repeats_last: bool = False
    """Each page begins with the last entry of the page before."""
    v1_only: bool = False
    """Knows version 1 of S3's listing alone: ignores ``list-type``, ``start-after`` and ``continuation-token``."""
    v1_next_marker: bool = False
    """With ``v1_only``: names NextMarker without a delimiter too, as Ceph does and AWS does not."""

    # Listings: what they hold.
    ignores_prefix: bool = False
    ignores_start_after: bool = False
    """Starts at the first key (S3: ``start-after``; Azure: ``startFrom``)."""
    ignores_delimiter: bool = False
    folds_unasked: bool = False
    """Folds at ``/`` although no delimiter was given."""
    order: Literal["sorted", "reversed", "shuffled"] = "sorted"
    """Order of the keys over the whole listing."""
    whole_seconds: bool = False
    """States times without fractions of a second."""
    no_times: bool = False
    """States no time in listings and heads."""
    listed_size_offset: int = 0
    """Is added to each size in a listing."""
    lists_directories: bool = False
    """Has a hierarchical namespace: lists directories beside blobs, and deletes none that is not empty (Azure)."""
    encodes_names: bool = False
    """Writes the names in a listing percent-encoded, and says so (Azure)."""
    clock_ahead_s: float = 0
    """How far the clock is ahead of ours: shifts ``Date`` and every time that the store states."""

    # Objects.
    etags: Literal["md5", "opaque", "none"] | None = None
    """``md5``: MD5 of the bytes, for uploads MD5 of the MD5s with ``-N``. ``opaque``: random hex digits that look like
    an MD5 and are none, new with each write. None: ``opaque`` for Azure, ``md5`` for the others, as the clouds do."""
    forgets_writes: bool = False
    """Answers every write as if it had stored the object, and stores nothing."""
    ignores_if_match: bool = False
    """Reads ignore ``If-Match`` and a named generation."""
    ignores_versions: bool = False
    """Reads and deletes ignore ``versionId`` and ``generation``."""
    ignores_range: bool = False
    """Answers 200 with the whole object."""
    ignores_write_conditions: bool = False
    """PUT, completion and copy ignore conditions on what they replace."""
    ignores_delete_conditions: bool = False
    ignores_copy_conditions: bool = False
    """Copies ignore conditions on what they copy."""
    refuses_conditions: bool = False
    """Answers 501 NotImplemented to a write or delete with a condition."""
    folds_names: bool = False
    """Takes keys that differ in case or in Unicode form for one, as macOS and Windows do. Listings state the key that
    was written first."""
    merges_segments: bool = False
    """Takes ``a//b``, ``/a/b``, ``a/./b`` and ``a/x/../b`` for ``a/b``, as a server of files does, and lists that."""
    constant_etag: str = ""
    """States this ETag for every object."""
    versioned: bool = False
    """Keeps every version and states its id (S3; GCS states generations always and keeps one)."""
    pending_copies: int = 0
    """Times that a copy is reported as pending after it was accepted; -1: for ever, without progress (Azure)."""
