"""Divide a listing into pages, correctly or with the faults of the habits."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from dataclasses import dataclass, field

from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Object


@dataclass
class Page:
    """One page."""

    objects: list[Object] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    truncated: bool = False
    token: str | None = None
    """Opaque token with the last entry and the number of empty pages so far. Deletions between pages skip no entry."""
    last: str = ""
    """The page's last entry, a key or a folded prefix: the marker of version 1."""


@dataclass
class Asked:
    """A request for a page."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    """Only entries after this one (S3: ``start-after``, ``marker``)."""
    start: str = ""
    """Only entries from this one on (Azure: ``startFrom``)."""
    token: str = ""
    page_keys: int = 1000


def cut(objects: list[Object], asked: Asked, habits: Habits) -> Page:
    """Return the page that the store sends."""
    last, empty = ("", 0) if habits.repeats_page else _read(asked.token)
    if empty < habits.empty_pages or habits.empty_pages < 0:
        return Page(truncated=True, token=_token(last, empty + 1))
    entries = sorted(_entries(objects, asked, habits).items(), key=lambda entry: _rank(entry[0], habits))
    if last:
        first = _rank(last, habits)
        if not habits.repeats_last:
            first += b"\0"
        entries = [entry for entry in entries if _rank(entry[0], habits) >= first]
    taken = entries[: max(1, min(asked.page_keys, habits.page_keys))]
    page = Page(truncated=len(taken) < len(entries), last=taken[-1][0] if taken else "")
    for name, found in taken:
        if found is None:
            page.prefixes.append(name)
        else:
            page.objects.append(found)
    if page.truncated:
        page.token = _token("" if habits.repeats_token else page.last, empty)
        if habits.repeats_page:
            page.token = _token(f"{random.SystemRandom().random()}", empty)
    return page


def _entries(objects: list[Object], asked: Asked, habits: Habits) -> dict[str, Object | None]:
    """Return objects by key, and folded prefixes."""
    prefix = "" if habits.ignores_prefix else asked.prefix
    delimiter = "" if habits.ignores_delimiter else asked.delimiter or ("/" if habits.folds_unasked else "")
    after, start = ("", "") if habits.ignores_start_after else (asked.after, asked.start)
    entries: dict[str, Object | None] = {}
    for each in objects:
        if not each.key.startswith(prefix):
            continue
        folded = each.key.find(delimiter, len(prefix)) if delimiter else -1
        name = each.key if folded < 0 else each.key[: folded + len(delimiter)]
        if name.encode() > after.encode() and name.encode() >= start.encode():
            entries[name] = each if folded < 0 else None
    return entries


def _rank(name: str, habits: Habits) -> bytes:
    """Return the sort key of an entry."""
    raw = name.encode()
    if habits.order == "reversed":
        return bytes(255 - byte for byte in raw) + b"\xff"
    if habits.order == "by_folder":
        return raw.replace(b"/", b"\0")
    return hashlib.md5(raw).digest() if habits.order == "shuffled" else raw


def _token(last: str, empty: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([last, empty]).encode()).decode()


def _read(token: str) -> tuple[str, int]:
    if not token:
        return "", 0
    last, empty = json.loads(base64.urlsafe_b64decode(token))
    return str(last), int(empty)
