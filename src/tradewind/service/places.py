"""Places that jobs may use, and what they write there.

A job may use only what the operator has allowed: folders by `--allow-path`, buckets and prefixes by `--allow-store`,
with the credentials of the server. Those with `{tenant}` are different for each tenant. The state folder of the server
is never allowed, nor is the file of `--key-file`. Of a pattern, the fixed directory counts: what the pattern matches is
known only when the job runs. A user's own console allows the user every place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.engine.patterns import fixed_folder
from tradewind.errors import UsageError
from tradewind.model.url import Location, is_guest, parse_url
from tradewind.service.settings import ServiceSettings

__all__ = ["allowed_place", "conflict", "owned_places", "require_same_places"]

#: Control characters, and bytes that are not UTF-8. A `file:` URL can have them, but no document can.
_UNNAMEABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def allowed_place(text: str, settings: ServiceSettings, tenant: str) -> str:
    """Return a place in its resolved form, which means the same later.

    Raises UsageError if the tenant's jobs may not use it.
    """
    if not text.startswith("/") and "://" not in text:
        raise UsageError(f"{text}: neither a URL nor an absolute path")
    place = parse_url(text, cwd="/")
    if place.kind in ("mem", "pipe") or place.endpoint is not None:
        raise UsageError(f"{text}: jobs of the service cannot use this kind of place")
    if _UNNAMEABLE.search(str(place)):
        raise UsageError(f"{text}: the name has control characters, or is not UTF-8")
    if place.kind == "file":
        return _allowed_path(place, settings, tenant)
    if settings.console is not None:
        return str(place)
    if {".", ".."}.intersection(place.key.split("/")):
        # Stores over folders resolve them, and would leave the allowed prefix.
        raise UsageError(f"{text}: the key has a part . or ..")
    for root in settings.stores_of(tenant):
        allowed = parse_url(root, cwd="/")
        if place.root == allowed.root and _is_below(place.key, allowed.key.rstrip("/")):
            return str(place)
    raise UsageError(
        f"{text}: the operator has not allowed this store", hint="`tradewind serve --allow-store` allows one"
    )


def _allowed_path(place: Location, settings: ServiceSettings, tenant: str) -> str:
    path = os.path.realpath(place.key)
    resolved = path + "/" if place.is_directory and path != "/" else path
    if settings.console is not None:
        return resolved
    if not any(_is_below(path, root) for root in settings.paths_of(tenant)):
        # The same answer for every path, so that nobody learns which exist.
        raise UsageError(f"{place.key}: not below an allowed folder", hint="`tradewind serve --allow-path` allows one")
    folder = fixed_folder(Location("file", place.root, path))
    # A pattern may match all below its fixed folder.
    reached = path if folder is None else _plain(folder)
    own = [os.path.realpath(one) for one in (settings.state, settings.key_file) if one is not None]
    if any(_is_below(path, one) or _is_below(one, reached) for one in own):
        raise UsageError(f"{place.key}: not below an allowed folder")
    return resolved


def require_same_places(request: Mapping[str, Any], settings: ServiceSettings, tenant: str) -> None:
    """Check the resolved places of a tenant's request again: a folder may be a link now, or be allowed no more.

    Places of connections and guests are not checked. Raises UsageError.
    """
    places = [request["source"], *request["destination"]]
    named = request.get("connections")
    names = [None] * len(places) if named is None else [named["source"], *named["destination"]]
    for place in (place for place, name in zip(places, names, strict=True) if name is None):
        if not is_guest(place) and allowed_place(place, settings, tenant) != place:
            raise UsageError(f"{place}: a part of the path has become a link", hint="submit the job again")


def owned_places(
    sources: Sequence[str], destinations: Sequence[str], *, recursive: bool, with_sources: bool
) -> list[str]:
    """Return the places that a job writes, as URLs or paths without a trailing slash. A job owns what is below, too.

    A job that moves objects also owns its sources, because it deletes them (`with_sources`). So does one that deletes
    what its source does not have: another job that still writes the source would let it delete too much. What a pattern
    matches is not known before, so such a job owns the whole destination, and the pattern's fixed folder.
    """
    owned, starts = [], [parse_url(source, cwd="/") for source in sources]
    folders = [fixed_folder(start) for start in starts]
    for text in destinations:
        end = parse_url(text, cwd="/")
        if recursive or not end.is_directory or any(folders):
            owned.append(_plain(end))
        else:
            owned += [f"{_plain(end)}/{start.name}" for start in starts]
    if with_sources:
        owned += [_plain(folder or start) for folder, start in zip(folders, starts, strict=True)]
    return sorted(set(owned))


def conflict(ours: Sequence[str], theirs: Sequence[str]) -> str | None:
    """Return a place of ours that overlaps with one of theirs; None without one."""
    for one in ours:
        for other in theirs:
            if _is_below(one, other) or _is_below(other, one):
                return one
    return None


def _plain(place: Location) -> str:
    return str(place).rstrip("/") or "/"


def _is_below(path: str, root: str) -> bool:
    return path == root or root in ("", "/") or path.startswith(root + "/")
