"""The regions of both sides of a transfer: as the user or the address says, or as the store answers."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from tradewind.engine.store_places import store_spec
from tradewind.fleet.given import GivenCredentials, surroundings
from tradewind.gateway.task import ask_task
from tradewind.model.document import to_document
from tradewind.model.records import dataclass
from tradewind.model.region import Region, parse_region
from tradewind.model.store import Access
from tradewind.model.url import Location

__all__ = ["Side", "find_regions", "known_region", "named_region"]

PROVIDERS = {"s3": "aws", "gs": "gcp", "az": "azure"}
"""Provider whose region names apply to a store of this kind."""
REPORTING_KINDS = {"s3", "gs", "r2"}
"""Kinds of stores that report their region on request."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its region, or why it is unknown."""

    place: Location
    region: Region | None
    because: str


def named_region(text: str | None) -> Region | None:
    """Return the region in `aws:us-east-1`; None for a bare name, which only the store knows. Raises UsageError."""
    return parse_region(text) if text and ":" in text else None


def known_region(place: Location, access: Access) -> Side:
    """Return the region known without a request: from an option such as --src-region, or from the address."""
    named = named_region(access.region)
    if named is not None:
        return Side(place, named, "as said")
    name = access.region or place.region
    if place.kind in ("file", "mem", "pipe", "guest"):
        return Side(place, None, f"{place} is not a cloud store")
    if name and place.kind in PROVIDERS and _at_its_cloud(place, access):
        return Side(place, Region(PROVIDERS[place.kind], name), "as said")
    if place.kind == "az":
        return Side(place, None, f"Azure does not report the region of {place.root}")
    return Side(place, None, f"the region of {place.root} is not set")


def find_regions(
    sides: Sequence[tuple[Location, Access]], gateway: str, credentials: GivenCredentials | None = None
) -> list[Side]:
    """Do the same as `known_region`, and query stores with unknown regions together, with one or two requests each.

    With `credentials` the requests have these, and none of this machine.
    """
    found = [known_region(place, access) for place, access in sides]
    open_questions = [
        n for n, where in enumerate(found) if where.region is None and where.place.kind in REPORTING_KINDS
    ]
    if not open_questions:
        return found
    stores = [to_document(store_spec(sides[n][0].root, *sides[n])) for n in open_questions]
    with surroundings(credentials) as around:
        answers = ask_task(gateway, {"task": "locate", "stores": stores}, around)
    for n, answer in zip(open_questions, answers, strict=True):
        found[n] = _answered(*sides[n], answer)
    return found


def _answered(place: Location, access: Access, answer: dict[str, str]) -> Side:
    name, provider = answer.get("name"), answer.get("provider")
    if "error" in answer:
        return Side(place, None, f"the region of {place.root} cannot be determined: {answer['error']}")
    if provider is None and place.kind == "s3" and _at_its_cloud(place, access):
        provider = "aws"
    if name and provider:
        return Side(place, Region(provider, name), "the store says so")
    return Side(place, None, f"{place.root} is in no known cloud region")


def _at_its_cloud(place: Location, access: Access) -> bool:
    """Return whether the store is the cloud itself, not a compatible server with its own regions."""
    from tradewind.engine.aws_profile import s3_endpoint

    endpoint = access.endpoint or place.endpoint
    if endpoint is None and place.kind == "s3" and not access.is_given and (configured := s3_endpoint(access.profile)):
        endpoint = configured.url
    if endpoint is None:
        return True
    host = urlsplit(endpoint).hostname or ""
    return place.kind == "s3" and host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
