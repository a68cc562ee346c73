"""TOML texts of users: the configuration and flows files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tradewind.errors import ConfigError

__all__ = ["parse_toml"]


def parse_toml(content: bytes, place: str) -> dict[str, Any]:
    """Return the table of a TOML text. `place` names it in errors. Raises ConfigError."""
    loads = _reader(place)
    try:
        document: dict[str, Any] = loads(content.decode())
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{place}: nested too deeply") from None
    return document


def _reader(place: str) -> Callable[[str], dict[str, Any]]:
    """Return the parser of Python 3.11 and later, or the package of the same parser for Python 3.10."""
    for name in ("tomllib", "tomli"):
        try:
            loads: Callable[[str], dict[str, Any]] = import_module(name).loads
        except ImportError:
            continue
        return loads
    raise ConfigError(
        f"{place} cannot be read by Python 3.10 alone", hint="pip install 'tradewind[config]', or use Python 3.11"
    )
