"""Values of a table of the configuration, checked one by one."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from tradewind.errors import ConfigError

__all__ = ["ENTRIES_MAX", "TableReader"]

#: Maximum entries of a list or table in a configuration.
ENTRIES_MAX = 200


class TableReader:
    """Reads the values of a table. `place` names it in errors, such as `config.toml: aws`. Raises ConfigError."""

    def __init__(self, table: Mapping[str, Any], place: str) -> None:
        self._table, self._place = table, place

    def text(self, key: str, pattern: re.Pattern[str], what: str) -> str | None:
        """Return a text that matches a pattern, which `what` describes; None if the table does not have it."""
        return None if key not in self._table else self._checked(key, self._table[key], pattern, what)

    def texts(self, key: str, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
        """Return a list of texts that match a pattern, each of which `what` describes; empty if it is missing."""
        return tuple(self._checked(key, value, pattern, what) for value in self._list(key, what))

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._table.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self._place}.{key} must be true or false, not {value!r}")
        return value

    def whole(self, key: str, default: int, most: int) -> int:
        """Return a whole number from 1 to `most`."""
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ConfigError(f"{self._place}.{key} must be a whole number from 1 to {most}")
        return value

    def cidr(self, key: str) -> str | None:
        """Return a range of addresses; None if the table does not have it."""
        return None if key not in self._table else self._range(key, self._table[key])

    def cidrs(self, key: str) -> tuple[str, ...]:
        """Return a list of ranges of addresses; empty if it is missing."""
        return tuple(self._range(key, value) for value in self._list(key, "a range of addresses"))

    def _list(self, key: str, what: str) -> list[Any]:
        values = self._table.get(key, [])
        if not isinstance(values, list) or len(values) > ENTRIES_MAX:
            words = f"{self._place}.{key} must be a list of at most {ENTRIES_MAX} entries, not {values!r:.200}"
            raise ConfigError(words, hint=f"each is {what}")
        return values

    def _range(self, key: str, value: object) -> str:
        try:
            return str(ipaddress.ip_network(value if isinstance(value, str) else ""))
        except ValueError:
            hint = "for example 198.51.100.7/32"
            raise ConfigError(f"{self._place}.{key} must be a range of addresses, not {value!r}", hint=hint) from None

    def _checked(self, key: str, value: object, pattern: re.Pattern[str], what: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ConfigError(f"{self._place}.{key} must be {what}, not {value!r}")
        return value
