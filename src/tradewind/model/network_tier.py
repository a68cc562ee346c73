"""Network tiers: how traffic to other networks leaves a cloud. Not to be confused with price tiers (`tier.py`).

In the premium tier it stays in the cloud's own network for as long as possible; in the standard tier it leaves in the
region of the sender (hot-potato routing), for a lower price. Traffic that stays in the cloud is the same in both.
"""

from __future__ import annotations

from typing import Literal, get_args

from tradewind.errors import UsageError

__all__ = ["NetworkTier", "NetworkTierChoice", "check_network_tiers"]

NetworkTier = Literal["premium", "standard"]
NetworkTierChoice = Literal["premium", "standard", "best"]
"""Network tiers that a plan may use: one of them, where a region has it, or the better one for each machine."""


def check_network_tiers(text: str) -> NetworkTierChoice:
    """Return the network tiers that a user names. Raises UsageError."""
    for choice in get_args(NetworkTierChoice):
        if text == choice:
            return choice  # type: ignore[no-any-return]
    raise UsageError(f"a network tier is premium, standard or best, not {text!r}", hint="for example best")
