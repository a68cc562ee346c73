"""Orders for emulated clouds whose machines do not boot, and what a launch must have answered."""

from __future__ import annotations

from typing import Any

from tradewind.fleet.provider import LaunchOrder, LaunchResult, Lease, Machine, Refusal
from tradewind.gateway.owner import Join, JoinToken

__all__ = ["FLEET", "OWNER", "machine_of", "order_in", "refusal_of"]

FLEET, OWNER = "fleet-1", "owner-1"


def order_in(default_region: str, /, name: str = "one", fleet: str = FLEET, **changes: Any) -> LaunchOrder:
    """Return an order for a region, unless `region` is among the changes."""
    join = Join(fleet, name, JoinToken("ab" * 32, 2_000_000_000), "-----BEGIN CERTIFICATE-----", "192.0.2.1:7444")
    given: dict[str, Any] = {"region": default_region, "key": f"key-{fleet}-{name}", "generation": 1, **changes}
    return LaunchOrder(fleet, name, lease=Lease(900, OWNER), peers=("lead",), join=join, **given)


def machine_of(result: LaunchResult) -> Machine:
    """Return the machine of an order that must have been accepted."""
    assert result.machine is not None, result.refusal
    return result.machine


def refusal_of(result: LaunchResult) -> Refusal:
    """Return the refusal of an order that must have been refused, with one line as its reason."""
    assert result.machine is None and result.refusal is not None
    assert "\n" not in result.refusal.reason
    return result.refusal
