"""The key that signs the receipts of a service: Ed25519, in a file of the state folder that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.engine.signed_receipt import ALGORITHM, payload_of
from tradewind.errors import StateError

__all__ = ["KEY_FILE", "ReceiptKey"]

KEY_FILE = "receipt.key"


class ReceiptKey:
    """The key of one state folder, made when it is first used. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEY_FILE
        self._key: Any = None

    def public(self) -> dict[str, Any]:
        """Return the JWK set with the public key. Raises StateError."""
        key = self._loaded()
        named = {"kid": key.thumbprint(), "use": "sig", "alg": ALGORITHM}
        return {"keys": [{**key.as_dict(private=False), **named}]}

    def signed(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """Return a receipt with its signature. The same receipt gets the same one. Raises StateError."""
        from joserfc import jws

        key = self._loaded()
        header = {"alg": ALGORITHM, "kid": key.thumbprint()}
        head, _, tail = jws.serialize_compact(header, payload_of(receipt), key, algorithms=[ALGORITHM]).split(".")
        return {**receipt, "signature": f"{head}..{tail}"}

    def _loaded(self) -> Any:
        if self._key is None:
            from joserfc.errors import JoseError
            from joserfc.jwk import OKPKey

            try:
                self._make()
                self._key = OKPKey.import_key(self._path.read_bytes())
            except (JoseError, ValueError, OSError) as error:
                raise StateError(f"{self._path}: {error}", hint="restore the file from a backup") from error
        return self._key

    def _make(self) -> None:
        """Make the file unless it exists. It appears complete or not at all."""
        from joserfc.jwk import OKPKey

        if self._path.exists():
            return
        new = self._path.with_name(f".{KEY_FILE}.{os.urandom(4).hex()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(OKPKey.generate_key("Ed25519").as_pem(private=True))
                file.flush()
                os.fsync(file.fileno())
            os.link(new, self._path)
        except FileExistsError:
            pass  # Another thread or server was first.
        finally:
            new.unlink()
