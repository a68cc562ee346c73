"""File trees and object sets with distinct content, and their hashes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

MIB = 1 << 20

ODD_NAMES = [
    "with space",
    "trailing space ",
    "ünïcödé/日本語/🦀",
    "plus+and%20percent%",
    "quote\"'`and&amp;<angle>",
    "question?mark#hash=equals;semicolon,comma:colon@at",
    "back\\slash",
    "tilde~star*brackets[1]{2}",
    "-leading-dash",
    ".hidden/.file",
    "dots...and..more",
    "tab\there",
    "deep/" * 20 + "end",
]
"""Names that are valid both in a file system and in an object store."""
ODD_KEYS = [
    *ODD_NAMES,
    "double//slash",
    "many////slashes",
    "a",
    "a/b",
    "a/b/c",
    "marker/",
    "dot/./inside",
    "dotdot/../inside",
    "k" * 1024,
    "ü" * 512,
]
"""ODD_NAMES, and keys that are valid only in an object store: longer than 255 bytes, or with ``..``."""


def payload(name: str, size: int) -> bytes:
    """Return bytes that depend on ``name``, so that mixed-up objects are detected."""
    content: bytes = _random(name).update(bytes(size))
    return content


def _random(seed: str) -> CipherContext:
    """Return a cipher that turns zeros into pseudo-random bytes, five times as fast as Python's `random`."""
    key = hashlib.sha256(seed.encode()).digest()
    return Cipher(AES(key), CTR(bytes(16))).encryptor()


def write_tree(folder: Path, sizes: dict[str, int]) -> None:
    """Write files with :func:`payload` as content."""
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload(name, size))


def write_large(path: Path, size: int, seed: int = 1) -> str:
    """Write a file of pseudo-random bytes, in pieces; return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cipher, digest = _random(str(seed)), hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, MIB):
            piece = cipher.update(bytes(min(MIB, size - start)))
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def sha256(content: bytes) -> str:
    """Return the SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


def tree_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file by relative name, including hidden and temporary files."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where) / name
            found[str(path.relative_to(folder))] = file_sha256(path)
    return found
