"""The permanent misbehaviour of an odd store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Habits:
    """Each field is one fault. The defaults describe a store that behaves well. Change them at any time."""

    page_keys: int = 1000
    """Maximum entries on a listing's page, whatever the client requests. Not a fault: it keeps tests small."""
    empty_pages: int = 0
    """Pages without entries that precede the first entry; -1: every page is empty, and there is always another one."""

    # Listings: how they continue.
    omits_token: bool = False
    """A truncated page has no token to continue with: no NextContinuationToken, NextMarker or upload markers."""
    claims_end: bool = False
    """A truncated page claims to be the last one, but has the token of the next one (S3, GCS)."""
    omits_truncated: bool = False
    """Pages do not say whether they are truncated (S3, GCS)."""
    repeats_token: bool = False
    """Every page has the token of the first page."""
    repeats_page: bool = False
    """Ignores the token: every page is the first one, with a new token."""
    repeats_last: bool = False
    """Each page begins with the last entry of the page before."""
    v1_only: bool = False
    """Supports only version 1 of S3's listing: ignores ``list-type``, ``start-after`` and ``continuation-token``."""
    v1_next_marker: bool = False
    """With ``v1_only``: sends NextMarker even without a delimiter, as Ceph does and AWS does not."""

    # Listings: their content.
    ignores_prefix: bool = False
    ignores_start_after: bool = False
    """Starts at the first key (S3: ``start-after``; Azure: ``startFrom``)."""
    ignores_delimiter: bool = False
    folds_unasked: bool = False
    """Folds at ``/`` although no delimiter was given."""
    order: Literal["sorted", "by_folder", "reversed", "shuffled"] = "sorted"
    """Order of the keys over the whole listing. ``by_folder``: all of ``a/`` before ``a.txt``, as in a file system."""
    whole_seconds: bool = False
    """States times without fractions of a second."""
    no_times: bool = False
    """States no times in listings and heads."""
    listed_size_offset: int = 0
    """Is added to each size in a listing."""
    lists_directories: bool = False
    """Has a hierarchical namespace: lists directories beside blobs, and deletes only empty ones (Azure)."""
    encodes_names: bool = False
    """Percent-encodes the names in a listing, and marks them as encoded (Azure)."""
    clock_ahead_s: float = 0
    """Offset of the store's clock from ours: shifts ``Date`` and every time that the store states."""

    # Objects.
    etags: Literal["md5", "opaque", "none"] | None = None
    """``md5``: MD5 of the bytes; for uploads, MD5 of the parts' MD5s with ``-N``. ``opaque``: random hex digits that
    look like an MD5, new with each write. None: ``opaque`` for Azure, ``md5`` for the others, as in the clouds."""
    forgets_writes: bool = False
    """Confirms every write and stores nothing."""
    ignores_if_match: bool = False
    """Reads ignore ``If-Match`` and a given generation."""
    ignores_versions: bool = False
    """Reads and deletes ignore ``versionId`` and ``generation``."""
    ignores_range: bool = False
    """Ignores ranges: answers 200 with the whole object."""
    ignores_write_conditions: bool = False
    """PUT, completion and copy ignore conditions on the object that they replace."""
    ignores_delete_conditions: bool = False
    ignores_copy_conditions: bool = False
    """Copies ignore conditions on their source."""
    refuses_conditions: bool = False
    """Answers 501 NotImplemented to a write or delete with a condition."""
    folds_names: bool = False
    """Treats keys that differ only in case or Unicode form as the same, as macOS and Windows do. Listings state the key
    that was written first."""
    merges_segments: bool = False
    """Treats ``a//b``, ``/a/b``, ``a/./b`` and ``a/x/../b`` as ``a/b``, and lists that, as a file server does."""
    constant_etag: str = ""
    """States this ETag for every object."""
    versioned: bool = False
    """Keeps every version and states its id (S3; GCS always states generations and keeps one)."""
    rewrite_requests: int = 1
    """Number of requests that a copy by ``rewriteTo`` takes; -1: none ends it, and none copies anything (GCS)."""
    pending_copies: int = 0
    """Number of times that a copy is reported as pending after it was accepted; -1: for ever, without progress (Azure).
    """
