"""Errors of the clouds' own libraries about settings and files of this machine, in words."""

from __future__ import annotations

__all__ = ["WORDS_MAX", "words_of"]

#: Maximum length of the words: some errors contain a whole answer.
WORDS_MAX = 300


def words_of(error: Exception) -> str:
    """Return the first line of an error without its other arguments; for a file its path and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    said = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return " ".join(said.strip().partition("\n")[0].split())[:WORDS_MAX]
