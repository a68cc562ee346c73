"""Checks of an imported table beyond its format: known regions, no future dates, each entry once.

A figure for a misspelt region would never be used, a figure of the future would never age, and of two figures for one
pair only the second would count. All three are reported with file and line.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Sequence
from typing import Protocol

from tradewind.catalog.tables import Row
from tradewind.model.catalog import Catalog

__all__ = ["ImportCheck", "RowCheck", "date_has_come", "present"]

FURTHEST_EAST = datetime.timezone(datetime.timedelta(hours=14))
"""The time zone in which a day begins first: a date that has begun there may be today's date for the author."""
OWN_SITES = "site"
"""Provider of places that belong to no cloud: `site:lab`."""


class RowCheck(Protocol):
    """Called with each line of a table once its figures have been read. Raises ConfigError."""

    def __call__(self, row: Row, names: Sequence[Sequence[str]], entry: Hashable) -> None:
        """`names`: where each region of the line, or its provider, may stand; `entry`: what the line is about."""


class ImportCheck:
    """Refuses invalid entries of one table; see the module."""

    def __init__(self, known: Catalog, *, new_regions: bool) -> None:
        """With `new_regions` regions that `known` does not have are meant."""
        self._known = known
        self._regions = set(known.places) | set(known.grid.regions())
        self._new_regions = new_regions
        self._lines: dict[Hashable, int] = {}

    def __call__(self, row: Row, names: Sequence[Sequence[str]], entry: Hashable) -> None:
        """Check one line."""
        for columns in names:
            if row.column(columns) == "provider":
                self._check_provider(row)
            else:
                self._check_region(row, columns)
        date = row.fields.get("date", "")
        if date and not date_has_come(datetime.date.fromisoformat(date)):
            raise row.wrong("date", f"{date} is in the future")
        first = self._lines.setdefault(entry, row.line)
        if first != row.line:
            what = " → ".join(row.fields[row.column(columns)] for columns in names)
            raise row.wrong(row.column(names[0]), f"{what} is there already, in line {first}", hint="keep one of them")

    def _check_provider(self, row: Row) -> None:
        provider, known = row.fields["provider"].lower(), {region.provider for region in self._regions}
        if not (self._new_regions or provider in known or provider == OWN_SITES):
            raise row.wrong("provider", f"unknown provider {provider}", hint=f"known are {', '.join(sorted(known))}")

    def _check_region(self, row: Row, columns: Sequence[str]) -> None:
        region = row.region(*columns)
        if self._new_regions or region in self._regions or region.provider == OWN_SITES:
            return
        near = self._known.nearest_names(region)
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        hint = f"{guess}--new-regions accepts regions that the catalog does not know"
        raise row.wrong(row.column(columns), f"unknown region {region}", hint=hint)


def date_has_come(date: datetime.date) -> bool:
    """Return whether it is that day, or has been, anywhere on earth."""
    return date <= present().astimezone(FURTHEST_EAST).date()


def present() -> datetime.datetime:
    """Return the present time of an import, with a time zone."""
    return datetime.datetime.now(datetime.timezone.utc)
