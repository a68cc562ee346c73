"""The content of an odd store: buckets of objects in memory, with versions and unfinished uploads."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from testbed.odd_stores.habits import Habits


@dataclass
class Object:
    """One version of an object."""

    key: str
    body: bytes
    etag: str
    """Without quotes; empty if the store states none."""
    version: str
    """Version id (S3) or generation (GCS), increasing over the whole store."""
    modified_s: float
    """Seconds since the Unix epoch."""
    headers: dict[str, str] = field(default_factory=dict)
    """Content type, metadata and so on; names in lower case."""
    copy_polls: int = 0
    """Number of times that this copy will still be reported as pending."""
    copy_id: str = ""
    """Id of the copy that made this object (Azure)."""
    copy_status: str = "success"
    """Outcome of the copy, once it is no longer pending."""


@dataclass
class Upload:
    """An unfinished multipart upload, or the uncommitted blocks of a blob."""

    key: str
    upload_id: str
    opened_s: float
    headers: dict[str, str]
    parts: dict[str, bytes] = field(default_factory=dict)
    """Bytes by part number or block id."""


class Missing(Exception):
    """No such bucket, object or upload, as stated by the code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Objects:
    """All buckets. Every method may be called from any thread."""

    def __init__(self, habits: Habits) -> None:
        self.lock = threading.RLock()
        """Held while a request reads its conditions and writes."""
        self._habits = habits
        self._buckets: dict[str, dict[str, list[Object]]] = {}
        self._uploads: dict[str, dict[str, Upload]] = {}
        self._numbers = itertools.count(1)

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket. No effect if it exists."""
        with self.lock:
            self._buckets.setdefault(bucket, {})
            self._uploads.setdefault(bucket, {})

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        etag: str | None = None,
        modified_s: float | None = None,
    ) -> Object:
        """Write an object as its newest version."""
        with self.lock:
            made = Object(
                key,
                body,
                self._etag(body) if etag is None else etag,
                str(next(self._numbers)),
                time.time() if modified_s is None else modified_s,
                headers or {},
            )
            if self._habits.forgets_writes:
                return made
            key = self._stored(bucket, key)
            made.key = key
            versions = self._bucket(bucket).setdefault(key, [])
            if not self._habits.versioned:
                versions.clear()
            versions.append(made)
            return made

    def find(self, bucket: str, key: str, version: str | None = None) -> Object:
        """Return the newest version, or the given one. Raises :class:`Missing`."""
        with self.lock:
            versions = self._bucket(bucket).get(self._stored(bucket, key), [])
            found = [each for each in versions if version in (None, each.version)]
            if not found:
                raise Missing("NoSuchKey")
            return found[-1]

    def delete(self, bucket: str, key: str, version: str | None = None) -> None:
        """Delete an object, or one version. No effect if it is missing. There are no delete markers."""
        with self.lock:
            key = self._stored(bucket, key)
            versions = self._bucket(bucket).get(key, [])
            versions[:] = [each for each in versions if version not in (None, each.version)]
            if not versions:
                self._bucket(bucket).pop(key, None)

    def newest(self, bucket: str) -> list[Object]:
        """Return the newest version of each object, in byte order of the keys."""
        with self.lock:
            objects = self._bucket(bucket)
            return [objects[key][-1] for key in sorted(objects, key=str.encode)]

    def open_upload(self, bucket: str, key: str, headers: dict[str, str], upload_id: str | None = None) -> Upload:
        """Open an upload, or return the one with this id (Azure's blocks have no upload of their own)."""
        with self.lock:
            self._bucket(bucket)
            upload_id = upload_id or f"upload-{next(self._numbers)}"
            opened = Upload(key, upload_id, time.time(), headers)
            return self._uploads[bucket].setdefault(upload_id, opened)

    def upload(self, bucket: str, upload_id: str) -> Upload:
        """Return an unfinished upload. Raises :class:`Missing`."""
        with self.lock:
            self._bucket(bucket)
            if upload_id not in self._uploads[bucket]:
                raise Missing("NoSuchUpload")
            return self._uploads[bucket][upload_id]

    def forget_upload(self, bucket: str, upload_id: str) -> None:
        """Drop an upload and its parts. No effect if it is missing."""
        with self.lock:
            self._bucket(bucket)
            self._uploads[bucket].pop(upload_id, None)

    def uploads(self, bucket: str) -> list[Upload]:
        """Return the unfinished uploads by key and age."""
        with self.lock:
            self._bucket(bucket)
            return sorted(self._uploads[bucket].values(), key=lambda each: (each.key.encode(), each.opened_s))

    def multipart_etag(self, parts: Iterable[bytes]) -> str:
        """Return the ETag of an object made of parts."""
        digests = [hashlib.md5(part).digest() for part in parts]
        if self._habits.etags != "md5":
            return self._etag(b"")
        return f"{hashlib.md5(b''.join(digests)).hexdigest()}-{len(digests)}"

    def part_etag(self, part: bytes) -> str:
        """Return the ETag of a part. It is never empty, because clients must send it back."""
        return self._etag(part) or hashlib.md5(part).hexdigest()

    def change(self, bucket: str, key: str, edit: Callable[[bytes], bytes]) -> None:
        """Rewrite an object with its headers kept, like another writer."""
        with self.lock:
            found = self.find(bucket, key)
            self.put(bucket, key, edit(found.body), found.headers)

    def _bucket(self, bucket: str) -> dict[str, list[Object]]:
        if bucket not in self._buckets:
            raise Missing("NoSuchBucket")
        return self._buckets[bucket]

    def _stored(self, bucket: str, key: str) -> str:
        """Return the key under which an object of this name is stored."""
        if self._habits.merges_segments:
            key = _merged(key)
        if not self._habits.folds_names:
            return key
        return next((known for known in self._bucket(bucket) if _folded(known) == _folded(key)), key)

    def _etag(self, body: bytes) -> str:
        if self._habits.constant_etag:
            return self._habits.constant_etag
        match self._habits.etags:
            case "md5":
                return hashlib.md5(body).hexdigest()
            case "opaque":
                return os.urandom(16).hex()
            case _:
                return ""


def _merged(key: str) -> str:
    segments: list[str] = []
    for segment in key.split("/"):
        if segment == "..":
            segments = segments[:-1]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/".join(segments) + ("/" if key.endswith("/") and segments else "")


def _folded(key: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())
