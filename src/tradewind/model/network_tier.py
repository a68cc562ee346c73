"""Network tiers: how traffic to other networks leaves a cloud. Not to be confused with price tiers (`tier.py`).

In the premium tier it stays in the cloud's own network for as long as possible; in the standard tier it leaves in the
region of the sender (hot-potato routing), for a lower price. Traffic that stays in the cloud is the same in both.
"""

from __future__ import annotations

from typing import Literal, get_args

from tradewind.errors import UsageError
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, EgressRule
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo

__all__ = ["NetworkTier", "NetworkTierChoice", "StandardTier", "check_network_tiers"]

NetworkTier = Literal["premium", "standard"]
NetworkTierChoice = Literal["premium", "standard", "best"]
"""Network tiers that a plan may use: one of them, where a region has it, or in each region the better one."""


@dataclass(frozen=True, slots=True)
class StandardTier:
    """The standard tier of one provider."""

    name: str
    """The provider's own name for it."""
    rules: tuple[EgressRule, ...]
    """Prices of egress to other networks; the first rule that matches applies."""
    not_offered_in: tuple[Region, ...]
    offered_origin: Origin
    """Origin of the regions that do not have it."""
    rate_origin: Origin
    """Origin of a link's rate without measurements: that of the premium tier is assumed."""

    def price(self, src: RegionInfo, dst: RegionInfo) -> EgressPrice | None:
        """Return the price of egress between two regions; `None` if unknown, not offered, or within the provider."""
        if src.region.provider == dst.region.provider or src.region in self.not_offered_in:
            return None
        return next((rule.price for rule in self.rules if rule.matches(src, dst)), None)


def check_network_tiers(text: str) -> NetworkTierChoice:
    """Return the network tiers that a user names. Raises UsageError."""
    for choice in get_args(NetworkTierChoice):
        if text == choice:
            return choice  # type: ignore[no-any-return]
    raise UsageError(f"a network tier is premium, standard or best, not {text!r}", hint="for example best")
