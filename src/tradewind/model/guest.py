"""The guest of a job: a user's host that reads its source or writes its destination, and takes part by itself.

It is behind NAT or a firewall as a rule, so it opens all connections, and its own client starts its gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tradewind.model.records import dataclass

__all__ = ["GUEST", "GUEST_JOIN_S", "GUEST_REGION", "GUEST_SILENCE_S", "Guest", "before_port"]

#: Name and region of the guest's gateway.
GUEST = "guest"
GUEST_REGION = "site:guest"
#: Time for the guest to join a run. After it the run fails.
GUEST_JOIN_S = 60.0
#: Time without a request of the guest's client after which the guest counts as gone.
GUEST_SILENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Guest:
    """The guest of one job. `id` names it in the process that runs the job.

    `address` is the IP address of this machine at which the guest reaches its gateways. Each address of `others` is one
    more route there.
    """

    id: str
    side: Literal["source", "destination"]
    address: str
    others: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The address as it stands before a port."""
        return before_port(self.address)

    def document(self) -> dict[str, Any]:
        """Return the guest as JSON."""
        return {"guest": self.id, "side": self.side, "address": self.address, "others": list(self.others)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Guest:
        """Return the guest of a document, which may have other entries."""
        return cls(document["guest"], document["side"], document["address"], tuple(document.get("others", ())))


def before_port(address: str) -> str:
    """Return an IP address as it stands before a port."""
    return f"[{address}]" if ":" in address else address
