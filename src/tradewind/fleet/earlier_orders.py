"""Orders of machines that were launched before."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, LaunchOrder, LaunchResult, Machine, Refusal

__all__ = ["known_machine", "taken_name"]


def known_machine(order: LaunchOrder, machines: Iterable[Machine]) -> LaunchResult | None:
    """Return the machine of an order that was launched before, or why its name is taken; None for a new order."""
    for machine in machines:
        if machine.ended or machine.tags.get(FLEET_TAG) != order.fleet_id:
            continue
        if machine.tags.get(KEY_TAG) == order.key:
            return LaunchResult(order, machine)
        if machine.name == order.name:
            return taken_name(order)
    return None


def taken_name(order: LaunchOrder) -> LaunchResult:
    """Return the refusal of an order whose fleet has a machine of this name from another order."""
    words = f"fleet {order.fleet_id} has another machine {order.name}"
    return LaunchResult(order, refusal=Refusal("bad request", words))
