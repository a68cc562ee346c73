"""SHA-256 without OpenSSL.

Importing `hashlib` loads OpenSSL, which takes 2 ms of each command. For short texts, the standard library's `random`
therefore prefers Python's own code, and so does this module.
"""

from __future__ import annotations

__all__ = ["sha256_hex"]


def sha256_hex(content: bytes) -> str:
    """Return the SHA-256 of a short content in hexadecimal digits."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]  # Since Python 3.12.
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found, no-redef, unused-ignore]
        except ImportError:  # Another Python than CPython.
            from hashlib import sha256
    return str(sha256(content).hexdigest())
