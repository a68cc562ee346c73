"""Cost of a machine: its time, as its provider bills it, at the price of its offer."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tradewind.fleet.provider import ANY_TYPE, Machine, Offer

__all__ = ["billed_usd", "offer_of"]


def offer_of(machine: Machine, offers: Iterable[Offer]) -> Offer | None:
    """Return the offer that a machine was launched by; None if it is not among them.

    Hosts have no types: of several offers of a region, that of the machine's zone applies.
    """
    able = [offer for offer in offers if offer.region == machine.region and offer.spot == machine.spot]
    typed = [offer for offer in able if offer.type == machine.type]
    untyped = [offer for offer in able if offer.type == ANY_TYPE]
    zoned = [offer for offer in untyped if machine.zone in offer.zones]
    return next(iter(typed or zoned or untyped), None)


def billed_usd(machine: Machine, offer: Offer, until_unix_s: float) -> float | None:
    """Return the cost of a machine until a time, or until it ended; None if the provider does not say when it began."""
    billing = offer.billing
    began_s = machine.running_unix_s if billing.begins == "running" else machine.launched_unix_s
    if began_s is None:
        return None
    lasted_s = max(billing.least_s, (machine.ended_unix_s or until_unix_s) - began_s, 0.0)
    return math.ceil(lasted_s / billing.unit_s) * billing.unit_s * offer.usd_per_s
