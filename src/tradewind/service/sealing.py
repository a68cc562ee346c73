"""Secrets of tenants in the database: AES-256-GCM (NIST SP 800-38D) with a key that is not in the database.

All servers of a database have the key, so it also proves one to another.

The tenant and the name of a secret are authenticated with it. So a ciphertext cannot be moved to another row.

The same holds for the numbers of rows in answers: they count the rows of all tenants, so a tenant gets each of them as
an opaque text, by AES-SIV (RFC 5297). Equal numbers have equal texts.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from tradewind.errors import StateError, UsageError
from tradewind.service.settings import ServiceSettings

__all__ = ["Sealer"]

KEY_FILE = "service.key"
KEY_BYTES = 32
NONCE_BYTES = 12
#: Derives the key of proofs from that of the cipher.
PROOF_LABEL = b"tradewind proof of the key"
#: Derives the key of opaque numbers.
NUMBERS_LABEL = b"tradewind numbers of rows"
NUMBER_BYTES = 8
#: Permissions that the key's file must not have.
OTHERS = 0o077


class Sealer:
    """Seals and opens secrets with one key."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        #: As long as the key. It cannot open what the cipher seals.
        self._proof_key = hmac.digest(key, PROOF_LABEL, "sha256")
        self._numbers = AESSIV(hmac.digest(key, NUMBERS_LABEL, "sha512"))

    @classmethod
    def of(cls, settings: ServiceSettings) -> Sealer:
        """Return the sealer of a server; its key is made if `--key-file` names none. Raises UsageError, OSError."""
        path = Path(settings.key_file or settings.state / KEY_FILE)
        if not path.exists() and settings.key_file is None:
            _make_key(path)
        if stat.S_IMODE(path.stat().st_mode) & OTHERS:
            raise UsageError(f"{path}: other users may read the key", hint=f"chmod 600 {path}")
        try:
            key = base64.b64decode(path.read_bytes().strip(), validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise UsageError(f"{path}: not {KEY_BYTES} bytes in base64", hint="`openssl rand -base64 32` prints a key")
        return cls(key)

    def proof(self, text: str) -> str:
        """Return what proves that its sender has the key: HMAC-SHA-256 of a text (RFC 2104), in hexadecimal."""
        return hmac.digest(self._proof_key, text.encode(), "sha256").hex()

    def seal(self, secret: str, tenant: str, name: str) -> str:
        """Return the ciphertext of a secret, in base64."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, secret.encode(), _label(tenant, name))
        return base64.b64encode(sealed).decode()

    def open(self, sealed: str, tenant: str, name: str) -> str:
        """Return the secret. Raises StateError for another key, or a ciphertext of another row."""
        raw = base64.b64decode(sealed)
        try:
            secret: bytes = self._cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], _label(tenant, name))
        except InvalidTag:
            raise StateError(
                f"the secret of {name} cannot be opened",
                hint="the key file may have been replaced: restore the old one",
            ) from None
        return secret.decode()

    def opaque(self, number: int, tenant: str, name: str) -> str:
        """Return the text that stands for the number of a row of a tenant, in URL-safe base64."""
        raw = self._numbers.encrypt(number.to_bytes(NUMBER_BYTES, "big"), [_label(tenant, name)])
        return base64.urlsafe_b64encode(raw).decode()

    def number(self, text: str, tenant: str, name: str) -> int | None:
        """Return the number that a text of `opaque` stands for; None for any other text."""
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
            return int.from_bytes(self._numbers.decrypt(raw, [_label(tenant, name)]), "big")
        except (ValueError, InvalidTag):
            return None


def _label(tenant: str, name: str) -> bytes:
    return f"{tenant}\0{name}".encode()


def _make_key(path: Path) -> None:
    """Write a new key. It is complete before it gets its name, so a killed server leaves no part of one."""
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
