"""Orders of the clients that are killed: with tokens that their test has written, so that gateways really run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from tests.fleet.orders import FLEET, OWNER
from tradewind.fleet.provider import LaunchOrder, Lease
from tradewind.gateway.owner import Join

__all__ = ["JOINS", "LEASE_S", "REGION", "order", "write_joins"]

REGION = "site:a"
JOINS = "TESTBED_JOINS"
"""Environment variable with the path of the join documents."""
LEASE_S = 600


def write_joins(path: Path, joins: dict[str, Join]) -> None:
    """Write the join documents of machines, by name."""
    path.write_bytes(pickle.dumps(joins))


def order(name: str) -> LaunchOrder:
    """Return the order of a machine."""
    joins: dict[str, Join] = pickle.loads(Path(os.environ[JOINS]).read_bytes())
    lease = Lease(LEASE_S, OWNER)
    return LaunchOrder(FLEET, name, REGION, f"key-{name}", 1, lease, peers=("lead",), join=joins[name])
