"""Words of a command that an SSH server gives to the login shell of a user, which may be any shell."""

from __future__ import annotations

import re

__all__ = ["shell_word"]

#: Characters that no shell reads as something else.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+,-]+")


def shell_word(text: str) -> str:
    """Return a text as one word for the shells of POSIX, csh and fish. Raises ValueError for a line break.

    In single quotes, csh replaces `!`, and fish reads `\\` as an escape. So these, and the quote itself, stand outside.
    """
    if "\n" in text or "\r" in text:
        raise ValueError("no shell word may have a line break")
    if _PLAIN.fullmatch(text):
        return text
    pieces = re.split(r"([!\\']+)", text)
    quoted = [
        "".join(f"\\{character}" for character in piece) if index % 2 else (f"'{piece}'" if piece else "")
        for index, piece in enumerate(pieces)
    ]
    return "".join(quoted) or "''"
