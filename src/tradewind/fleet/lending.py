"""The stores of a gateway's program, with the keys for which it needs credentials."""

from __future__ import annotations

from tradewind.model.program import Program, StoreUse
from tradewind.model.records import replace
from tradewind.model.store import StoreSpec

__all__ = ["ON_THIS_HOST", "store_uses"]

#: Providers whose machines are processes of this host. Their gateways get this machine's credentials as they are.
ON_THIS_HOST = frozenset({"guest", "local", "sky"})


def store_uses(program: Program) -> tuple[StoreUse, ...]:
    """Return each store that a gateway opens, once, with the keys that it reads and writes there."""
    found: list[StoreUse] = []

    def take(store: StoreSpec) -> StoreUse:
        # A store has a mapping, so it cannot be a key.
        known = next((one for one in found if one.store == store), None)
        if known is not None:
            found.remove(known)
        return known or StoreUse(store)

    if program.source is not None and program.reads is not None:
        found.append(replace(take(program.source), reads=(program.reads,)))
    for store, keys in zip(program.sinks, program.writes, strict=False):
        known = take(store)
        found.append(replace(known, writes=(*known.writes, keys), copies=program.copies))
    return tuple(found)
