"""Regions: places with their own egress price and machines."""

from __future__ import annotations

from tradewind.errors import UsageError
from tradewind.model.origin import UNKNOWN_ORIGIN, Origin
from tradewind.model.records import dataclass, field

__all__ = ["Region", "RegionInfo", "parse_region"]


@dataclass(frozen=True, order=True)
class Region:
    """A place with its own egress price, written ``provider:name`` (``aws:us-east-1``, ``site:lab``)."""

    provider: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Region:
        """Read ``provider:name``.

        Raises:
            ValueError: if either part is missing.
        """
        provider, colon, name = text.strip().partition(":")
        if not colon or not provider or not name or ":" in name or " " in text.strip():
            raise ValueError(f"'{text}' is not a region; write provider:name, e.g. aws:us-east-1")
        return cls(provider.lower(), name)

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


def parse_region(text: str) -> Region:
    """Return a region as a user typed it. Raises UsageError."""
    if "/" in text:
        raise UsageError(
            f"{text!r} is a store or path, not a region; write provider:name, e.g. aws:us-east-1",
            hint="`tradewind cp SRC DST --dry-run` shows the plan between two stores",
        )
    try:
        return Region.parse(text)
    except ValueError as error:
        raise UsageError(str(error), hint="`tradewind catalog show` lists all regions") from None


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """Location of a region, as published by its provider."""

    region: Region
    label: str
    """City or state and country."""
    latitude_deg: float
    longitude_deg: float
    continent: str
    """The continent as bandwidth price lists divide the world: ``north-america``, ``europe``, ``asia``, …."""
    origin: Origin = field(default=UNKNOWN_ORIGIN, compare=False)
    """Origin of the coordinates."""
