"""The messages that tenants read about runs with the operator's own keys.

Stores name the account of a key in their words, such as the user of Amazon or the service account of Google, and the
engine names where the operator's store is and where its keys were found. A tenant reads the store's code and status
instead. Words about a tenant's own connections are left as they are, and so are those of a user's own console.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import copy
from typing import Any

from tradewind.errors import TradewindError, Unauthorised
from tradewind.service.settings import ServiceSettings

__all__ = ["KEYS_REFUSED", "hides_words", "told_document", "told_error", "told_line", "told_text"]

KEYS_REFUSED = "the operator's keys for this store are missing or refused"
#: A store's URL with the colon after it, or else the first colon.
_STORE = r"(?:s3|gs|az|r2)://"
_BEFORE = rf"(.*?{_STORE}.*?: |.*?: |)"
#: An answer with words: they may contain anything, so all before the last code goes.
_ANSWER = re.compile(rf"{_BEFORE}.*\(([^\s()]{{1,100}})\), HTTP (\d{{3}})\b.*", re.DOTALL)
#: The end of a message, after the status: the request's id, and where the keys were found.
_AFTER_STATUS = re.compile(r"(, HTTP \d{3})\b.*", re.DOTALL)
_KEYS, _KEYS_OF = re.compile(r"no credentials: .*", re.DOTALL), re.compile(r"; credentials: .*", re.DOTALL)
_SETTINGS = re.compile(rf"\b(open {_STORE}.*?: ).*", re.DOTALL)
#: A proxy of the operator, and the addresses of its stores.
_PROXY = re.compile(r" \(?through the proxy [^\s)]*[^\s):]\)?")
_ADDRESS = re.compile(r"\bhttps?://[^\s,;)]*[^\s,;):]", re.IGNORECASE)
#: Errors about keys, by the kinds of objects' verdicts and by the outcomes of runs.
_ABOUT_KEYS = ("unauthenticated", "forbidden", "expired", "unauthorised")
_TEXTS = ("message", "hint")


def hides_words(request: Mapping[str, Any], settings: ServiceSettings) -> bool:
    """Return whether the stores of a job are reached with keys that are not its tenant's."""
    return settings.console is None and request.get("connections") is None


def told_text(text: str, *, is_about_keys: bool = False) -> str:
    """Return a line without words of a store, addresses, and the places of keys."""
    if (answer := _ANSWER.fullmatch(text)) is not None:
        before, code, status = answer.groups()
        return f"{_ADDRESS.sub('the store', before)}{code}, HTTP {status}"
    if is_about_keys and ", HTTP " not in text and (found := re.match(rf".*?{_STORE}.*?: ", text)) is not None:
        return f"{found[0]}{KEYS_REFUSED}"
    for pattern, instead in (
        (_AFTER_STATUS, r"\1"),
        (_KEYS_OF, ""),
        (_KEYS, KEYS_REFUSED),
        (_SETTINGS, r"\1the operator's settings for this store are wrong"),
        (_PROXY, ""),
        (_ADDRESS, "the store"),
    ):
        text = pattern.sub(instead, text)
    return text


def told_error(error: TradewindError) -> TradewindError:
    """Return an error of the same kind with what a tenant may read."""
    told = copy(error)
    told.args = (told_text(str(error), is_about_keys=isinstance(error, Unauthorised)),)
    return told


def told_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event, a verdict or a part of a receipt with what a tenant may read."""
    is_about_keys = document.get("kind") in _ABOUT_KEYS or document.get("outcome") in _ABOUT_KEYS
    changed: dict[str, Any] = {
        name: told_text(document[name], is_about_keys=is_about_keys and name == "message")
        for name in _TEXTS
        if isinstance(document.get(name), str)
    }
    if "notices" in document:
        changed["notices"] = [told_text(text) for text in document["notices"] if isinstance(text, str)]
    return {**document, **changed}


def told_line(line: bytes) -> bytes:
    """Return a line of the list of objects with what a tenant may read; a line without a message as it is.

    One that was cut short, such as by `kill -9`, is left out: nobody can tell which words it has.
    """
    if b'"message"' not in line:
        return line
    try:
        document = json.loads(line)
    except ValueError:
        return b""
    told = told_document(document)
    return line if told == document else json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
