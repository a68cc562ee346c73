"""Signed receipts of a transfer service, and their verification without it.

The member `signature` of a receipt is a JWS (RFC 7515) with the algorithm `Ed25519` (RFC 9864) and a detached payload
(appendix F): the canonical JSON (RFC 8785) of the receipt without `signature`. The service publishes its public key as
a JWK set at `/v1/keys`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tradewind.engine.service_address import direct_opener, service_address
from tradewind.errors import GatewayError, ReceiptMismatch, UsageError
from tradewind.model.canonical import canonical_json
from tradewind.model.files import read_user_file

__all__ = ["ALGORITHM", "check_object_list", "keys_from", "payload_of", "read_keys", "read_receipt", "verify_receipt"]

ALGORITHM = "Ed25519"
SIGNATURE = "signature"
#: Time for a service to answer with its keys, and the most bytes of its answer.
KEYS_S_MAX = 10.0
KEYS_BYTES_MAX = 64 << 10
BLOCK_BYTES = 1 << 20


def payload_of(receipt: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed. Raises ValueError."""
    return canonical_json({name: value for name, value in receipt.items() if name != SIGNATURE})


def read_receipt(path: str) -> dict[str, Any]:
    """Return a receipt from a file. Raises UsageError, ReceiptMismatch, OSError."""
    return _object(read_user_file(Path(path)), path)


def read_keys(path: str) -> dict[str, Any]:
    """Return a JWK set, or a single JWK as a set, from a file. Raises UsageError, OSError."""
    return _key_set(_object(read_user_file(Path(path)), path), path)


def keys_from(url: str) -> dict[str, Any]:
    """Return the keys that a service publishes; `url` is its address: https, or http to this host.

    Raises UsageError, GatewayError.
    """
    from http.client import HTTPException
    from urllib.error import URLError

    address = f"{service_address(url, 'the keys could be replaced on their way')}/v1/keys"
    try:
        with direct_opener().open(address, timeout=KEYS_S_MAX) as answer:
            content = answer.read(KEYS_BYTES_MAX)
    except (URLError, OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise GatewayError(f"{address}: {reason}", hint="save the keys to a file, and use --key FILE") from None
    return _key_set(_object(content, address), address)


def verify_receipt(receipt: Mapping[str, Any], keys: Mapping[str, Any]) -> str:
    """Return the id of the key that signed a receipt. Raises ReceiptMismatch, UsageError without `joserfc`."""
    if not find_spec("joserfc"):
        raise UsageError("receipts need joserfc to be verified", hint="install tradewind[service]")
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    signature = receipt.get(SIGNATURE)
    if not isinstance(signature, str) or signature.count(".") != 2:
        raise ReceiptMismatch(
            "the receipt has no signature", hint="only jobs that have ended have a signed receipt; fetch it again"
        )
    head, _, tail = signature.split(".")
    try:
        payload = payload_of(receipt)
        compact = ".".join((head, _base64url(payload), tail))
        known = KeySet.import_key_set({"keys": [dict(key) for key in keys["keys"]]})
        found = jws.deserialize_compact(compact, known, algorithms=[ALGORITHM])
        return str(found.headers().get("kid", ""))
    except (JoseError, ValueError, TypeError, KeyError) as error:
        reason = "it was changed, or signed with another key" if "ignature" in str(error) else str(error)
        raise ReceiptMismatch(
            f"the signature does not match: {reason or type(error).__name__}", hint="fetch receipt and key again"
        ) from None


def check_object_list(receipt: Mapping[str, Any], path: str) -> None:
    """Check that a file is the list of objects that the receipt names. Raises ReceiptMismatch, OSError."""
    named = receipt.get("objects")
    if not isinstance(named, dict):
        raise ReceiptMismatch("the receipt has no list of objects", hint="the list was removed before the job ended")
    digest = sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != named.get("list_sha256") or os.stat(path).st_size != named.get("list_bytes"):
        raise ReceiptMismatch(f"{path}: not the list of objects of the receipt", hint="fetch it again")


def _base64url(content: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _object(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(content, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{name}: not a JSON object")
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's members. Raises ReceiptMismatch for a name twice: readers disagree about which one counts."""
    members: dict[str, Any] = {}
    for name, member in pairs:
        if name in members:
            raise ReceiptMismatch(f"{name!r} occurs twice in an object", hint="fetch receipt and key again")
        members[name] = member
    return members


def _key_set(document: dict[str, Any], name: str) -> dict[str, Any]:
    keys = document.get("keys", [document])
    if not isinstance(keys, list) or not all(isinstance(key, dict) and "kty" in key for key in keys):
        raise UsageError(f"{name}: not a JWK set", hint="a service publishes its keys at /v1/keys")
    return {"keys": keys}
