"""Check the attributes that a transfer sets, before anything moves: a store would refuse them with the first object."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from tradewind.errors import UsageError
from tradewind.model.job import AttributeRules, ObjectLock, Preserve, SourceTags
from tradewind.model.records import replace
from tradewind.model.url import Kind, Location

#: Maximum bytes of all names and values of user metadata: 2 KiB at S3, 8 KiB elsewhere, as the stores document.
METADATA_BYTES_MAX: dict[Kind, int] = {"s3": 2048, "gs": 8192, "az": 8192, "r2": 8192}

#: Kinds of store whose objects have tags.
KINDS_WITH_TAGS: tuple[Kind, ...] = ("s3", "az")

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = rf"{_TOKEN}/{_TOKEN}(\s*;[ -~]*)?"
#: Azure's names of metadata are identifiers of C#.
_AZURE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
#: Text that survives a header: visible ASCII, without spaces at the ends.
_VALUE = r"([!-~]([ -~]*[!-~])?)?"


def checked_class(storage_class: str | None, kinds: Iterable[Kind]) -> str | None:
    """Return the storage class. Raises UsageError if all destinations are files, which have none."""
    if storage_class is not None and all(kind == "file" for kind in kinds):
        raise UsageError(
            "a storage class is an attribute of objects, and files have none",
            hint="leave out --storage-class, or name a destination in an object store",
        )
    return storage_class


def checked(rules: AttributeRules, kinds: Iterable[Kind]) -> AttributeRules:
    """Return the rules with names in lower case, if destinations of these kinds can hold them. Raises UsageError."""
    if rules == AttributeRules():
        return rules
    stores = [kind for kind in kinds if kind != "file"]
    if not stores:
        raise UsageError(
            "content type, cache control and metadata are attributes of objects, and files have none",
            hint="leave them out, or name a destination in an object store",
        )
    if rules.content_type is not None and not re.fullmatch(_MEDIA_TYPE, rules.content_type):
        raise UsageError(f"content type {rules.content_type!r}: not TYPE/SUBTYPE", hint="for example text/html")
    if rules.cache_control is not None and not (rules.cache_control and re.fullmatch(_VALUE, rules.cache_control)):
        raise UsageError(f"cache control {rules.cache_control!r}: not printable ASCII", hint="for example max-age=3600")
    metadata = _lower_case(rules)
    for name, value in metadata.items():
        _check_entry(name, value, stores)
    size = sum(len(name) + len(value) for name, value in metadata.items())
    least = min(METADATA_BYTES_MAX.get(kind, size) for kind in stores)
    if size > least:
        raise UsageError(f"metadata of {size:,} bytes: a destination takes at most {least:,}", hint="shorten it")
    return replace(rules, metadata=metadata)


def treatment_of_tags(
    asked: SourceTags | None, tags: Mapping[str, str], source: Location, destinations: Iterable[Location]
) -> SourceTags:
    """Return the treatment of the source's tags. Tags that are set replace them unless the user says otherwise.

    Raises UsageError if tags must be kept and a store has none.
    """
    if asked is None:
        return "drop" if tags else "auto"
    if asked == "keep":
        for place in (source, *destinations):
            if place.kind not in KINDS_WITH_TAGS:
                raise UsageError(
                    f"--tags keep: {_name_of_kind(place.kind)} does not keep tags of objects: {place}",
                    hint="--tags auto keeps them where both stores can, and counts those that are dropped",
                )
    return asked


def checked_preserve(preserve: Preserve, rules: AttributeRules, destinations: Iterable[Location]) -> Preserve:
    """Return what copies keep of files. Raises UsageError if this user cannot do that, or if the rules drop it."""
    kept = [name for name, is_kept in (("mode", preserve.mode), ("owner", preserve.owner)) if is_kept]
    if kept and rules.directive == "replace":
        raise UsageError(
            f"--preserve {','.join(kept)} and --metadata-directive replace cannot be combined",
            hint="objects keep these in their metadata",
        )
    if preserve.owner and os.geteuid() != 0:
        for place in destinations:
            if place.kind == "file":
                raise UsageError(
                    f"--preserve owner: only root can give files to other users: {place}",
                    hint="run as root, or leave out owner",
                )
    return preserve


def checked_lock(lock: ObjectLock, destinations: Iterable[Location]) -> ObjectLock | None:
    """Return the protection of new objects, if destinations of these kinds can have it. Raises UsageError.

    None if none is wanted. Whether a bucket has Object Lock is asked before the first object is written.
    """
    if lock == ObjectLock():
        return None
    for place in destinations:
        if place.kind != "s3":
            raise UsageError(
                f"{place}: {_name_of_kind(place.kind)} has no S3 Object Lock",
                hint="leave out --object-lock-mode and --legal-hold, or name a bucket of S3",
            )
    if lock.retention is not None and lock.retention.until_unix_s <= time.time():
        raise UsageError("the end of the retention has passed", hint="name a later time with --retain-until")
    return lock


def _name_of_kind(kind: Kind) -> str:
    return {"az": "Azure", "gs": "Google Cloud Storage", "r2": "R2", "mem": "memory"}.get(kind, "a file system")


def _lower_case(rules: AttributeRules) -> dict[str, str]:
    """Return the metadata with names in lower case, as stores compare them. Raises UsageError for a repeated name."""
    metadata: dict[str, str] = {}
    for name, value in rules.metadata.items():
        if name.lower() in metadata:
            raise UsageError(f"metadata {name}: set twice", hint="stores do not distinguish upper and lower case")
        metadata[name.lower()] = value
    return metadata


def _check_entry(name: str, value: str, stores: Sequence[Kind]) -> None:
    if not re.fullmatch(_TOKEN, name):
        raise UsageError(
            f"metadata {name!r}: not the name of a header", hint="use letters, digits, hyphens and underscores"
        )
    if "az" in stores and not re.fullmatch(_AZURE_NAME, name):
        raise UsageError(
            f"metadata {name}: Azure does not accept this name",
            hint="use letters, digits and underscores, and begin with a letter",
        )
    if not re.fullmatch(_VALUE, value):
        raise UsageError(
            f"metadata {name}: {value!r} is not printable ASCII without spaces at its ends",
            hint="encode it, for example with base64",
        )
