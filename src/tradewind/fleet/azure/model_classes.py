"""Let several threads make objects of Microsoft's models.

A class of these models gathers the types of its fields when its first object is made. If two threads do that at the
same time, one of them may fail. The client does not report it: it returns a `dict` in place of the object.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

__all__ = ["guard_models"]

_GUARDING = threading.Lock()
_GUARDED: set[type] = set()


def guard_models(models: ModuleType) -> None:
    """Let one thread at a time prepare the classes of a module. Other generations of the clients prepare nothing."""
    base = _base_of(models)
    with _GUARDING:
        if base is not None and base not in _GUARDED:
            _guard(base)
            _GUARDED.add(base)


def _base_of(models: ModuleType) -> Any | None:
    """Return the class that prepares its subclasses; None if there is none."""
    kinds = (one for one in vars(models).values() if isinstance(one, type))
    bases = (base for kind in kinds for base in kind.__mro__)
    return next((base for base in bases if "_calculated" in vars(base) and "__new__" in vars(base)), None)


def _guard(base: Any) -> None:
    make, preparing = base.__new__, threading.Lock()

    def make_alone(kind: type, *_: object, **__: object) -> Any:
        with preparing:
            return make(kind)

    base.__new__ = make_alone
