"""A plan plus facts from provisioning: the addresses of its gateways. The plan itself is never edited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.model.plan import Plan


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Addresses of one gateway: `control` is `unix:PATH` or `ip:port`; `data` is `ip:port` or None."""

    control: str
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """`addresses` by gateway name. `detours` gives, for (start, end), an address to dial instead of the data port: a
    tunnel or a proxy between the two. `identities` is the folder of the fleet's certificates, which a control API over
    HTTPS requires; None if there are none.
    """

    plan: Plan
    addresses: Mapping[str, GatewayAddress]
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    identities: Path | None = None

    def dial(self, start: str, end: str) -> str:
        """The address that `start` dials to reach `end`. Raises KeyError if `end` has no data port."""
        detour = self.detours.get((start, end))
        if detour is not None:
            return detour
        data = self.addresses[end].data
        if data is None:
            raise KeyError(end)
        return data
