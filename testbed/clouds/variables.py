"""Variables of the environment for a while, such as the credentials of an emulated cloud."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["variables"]


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment within the context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
