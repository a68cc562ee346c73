"""Requests to object stores: the number for a transfer, and their cost at list price."""

from __future__ import annotations

import math

from tradewind.model.job import DEFAULT_CHUNK_BYTES
from tradewind.model.records import dataclass

__all__ = ["KEYS_PER_LIST", "ObjectSet", "RequestPrices", "Requests", "request_usd"]

KEYS_PER_LIST = 1000
"""Keys in one answer to a LIST request: the limit, or the billing unit, of all three providers."""


@dataclass(frozen=True, slots=True)
class RequestPrices:
    """Price of 1,000 requests at one object store [USD]."""

    get_usd_per_1000: float = 0.0
    put_usd_per_1000: float = 0.0
    list_usd_per_1000: float = 0.0
    head_usd_per_1000: float = 0.0

    @property
    def cost_anything(self) -> bool:
        """True if any price is above zero."""
        return max(self.get_usd_per_1000, self.put_usd_per_1000, self.list_usd_per_1000, self.head_usd_per_1000) > 0


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests to one object store. Each part of an upload is a PUT, as are its start and its end."""

    gets: int = 0
    puts: int = 0
    lists: int = 0
    heads: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.gets + other.gets, self.puts + other.puts, self.lists + other.lists, self.heads + other.heads
        )

    def __str__(self) -> str:
        named = {"GET": self.gets, "PUT": self.puts, "LIST": self.lists, "HEAD": self.heads}
        return ", ".join(f"{count:,} {name}" for name, count in named.items() if count)


def request_usd(requests: Requests, prices: RequestPrices) -> float:
    """Return the cost of requests to one store [USD]."""
    return (
        requests.gets * prices.get_usd_per_1000
        + requests.puts * prices.put_usd_per_1000
        + requests.lists * prices.list_usd_per_1000
        + requests.heads * prices.head_usd_per_1000
    ) / 1000


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """Number of objects in a transfer, as far as it determines the number of requests."""

    count: int
    volume_bytes: float
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    """Objects up to this size are read and written with one request each; larger ones in parts of this size."""

    @classmethod
    def of_chunk_size(cls, volume_bytes: float, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> ObjectSet:
        """Return the assumption for unlisted objects: one chunk (16 MiB) each."""
        return cls(max(1, math.ceil(volume_bytes / chunk_bytes)), volume_bytes, chunk_bytes)

    @property
    def parts_per_object(self) -> int:
        """Parts of an object of mean size."""
        return max(1, math.ceil(self.volume_bytes / max(1, self.count) / self.chunk_bytes))

    def at_source(self) -> Requests:
        """Return the requests that read all objects: a GET per part, a LIST per 1,000 keys, a HEAD if in parts."""
        parts = self.parts_per_object
        heads = self.count if parts > 1 else 0
        return Requests(gets=self.count * parts, lists=math.ceil(self.count / KEYS_PER_LIST), heads=heads)

    def at_destination(self) -> Requests:
        """Return the requests that write them: a PUT each; in parts, a PUT per part, two to open and close, a HEAD."""
        parts = self.parts_per_object
        if parts == 1:
            return Requests(puts=self.count)
        return Requests(puts=self.count * (parts + 2), heads=self.count)
