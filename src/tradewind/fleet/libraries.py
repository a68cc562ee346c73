"""Loads the clouds' client libraries when they are first needed."""

from __future__ import annotations

import threading
from importlib import import_module

__all__ = ["load_libraries"]

_loading = threading.Lock()


def load_libraries(*names: str) -> None:
    """Import modules by their full names, in one thread at a time. Import statements then find them complete.

    Their modules import each other. Two threads that begin with different ones can each wait for the other. Python
    then lets one continue with a module that is not complete, and a sound import fails. Raises ImportError.
    """
    with _loading:
        for name in names:
            import_module(name)
