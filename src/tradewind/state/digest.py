"""Digests in recorded documents. Neither SQLite nor JSON notices a flipped byte, which may change a meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tradewind.model.digest import sha256_hex

__all__ = ["with_digest", "without_digest"]

#: Key of the digest.
DIGEST = "digest"
#: Length of the digest in hex digits: it is for accidents, not for attackers.
DIGITS = 16


def with_digest(document: Mapping[str, Any], about: Any) -> dict[str, Any]:
    """Return a document with a digest of itself and of what it is `about`.

    That is the id of its row, other values there, or its file.
    """
    plain = json.loads(json.dumps(document))  # As it will be read: all keys are text.
    return {**plain, DIGEST: _digest(plain, about)}


def without_digest(document: Mapping[str, Any], about: Any) -> dict[str, Any]:
    """Return a document of `with_digest`, or one of an older version, which wrote no digest.

    Raises ValueError if the digest is not the one of the document.
    """
    found = dict(document)
    digest = found.pop(DIGEST, None)
    if digest is not None and digest != _digest(found, about):
        raise ValueError("it is not what was recorded")
    return found


def _digest(document: Mapping[str, Any], about: Any) -> str:
    return sha256_hex(json.dumps([about, document], sort_keys=True).encode())[:DIGITS]
