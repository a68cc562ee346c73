"""ETags of documents, and requests that change a document only if it is still the one that their sender has read."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Header

from tradewind.service.problems import ApiProblem

__all__ = ["IfMatch", "etag", "has_etag", "require_match"]

#: ETags of the document that a request may replace; without them it replaces any.
IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=1000)]
DIGITS = 32


def etag(document: Any) -> str:
    """Return the ETag of a JSON document, or of its text."""
    text = document if isinstance(document, str) else json.dumps(document)
    return f'"{sha256(text.encode()).hexdigest()[:DIGITS]}"'


def has_etag(header: str | None, tag: str) -> bool:
    """Return whether `If-Match` or `If-None-Match` names an ETag."""
    return header is not None and tag in [one.strip().removeprefix("W/") for one in header.split(",")]


def require_match(if_match: str | None, document: Any) -> None:
    """Raise ApiProblem 412 if `If-Match` does not name the ETag of a document as it is now."""
    if if_match is None or if_match.strip() == "*" or has_etag(if_match, etag(document)):
        return
    raise ApiProblem(412, "it has changed since it was read", hint="read it again, and send the ETag of that answer")
