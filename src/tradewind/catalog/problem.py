"""Self-contained problems: one JSON file that names grid, prices, caps, limits and goal.

Such a file can be used to compare any planner with ours. Its format is in docs/concepts/planner-problem.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.catalog.tables import GBPS_MAX, USD_PER_GB_MAX, read_rows
from tradewind.errors import ConfigError
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.document import read_json
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.records import dataclass
from tradewind.model.region import Region

__all__ = ["Problem", "read_problem"]

MACHINES_MAX = 10_000
CONNECTIONS_MAX = 100_000

_KEYS = {
    "throughput_csv",
    "rate_column",
    "price_csv",
    "connections_per_vm",
    "providers",
    "vm_limit",
    "boot_s",
    "source",
    "destination",
    "destinations",
    "volume_gb",
    "goal",
}
_GOALS = "min_throughput_gbps (with exactly), max_cost_usd, deadline_s, or one of cheapest, fastest, soonest: true"
FORMAT = "a problem file's format: docs/concepts/planner-problem.md"


@dataclass(frozen=True, slots=True)
class Problem:
    """Contents of a problem file."""

    catalog: Catalog
    source: Region
    destinations: tuple[Region, ...]
    """One destination, or several that each receive everything."""
    volume_gb: float
    goal: Goal
    machines_per_region: int
    connections_per_machine: int
    boot_s: float

    @property
    def destination(self) -> Region:
        """Return the only destination, or the first."""
        return self.destinations[0]


def read_problem(path: Path) -> Problem:
    """Read a problem file; paths in it are relative to it.

    Raises:
        ConfigError: names the fault and its place.
    """
    try:
        return _read_problem(path)
    except ConfigError as error:
        error.hint = error.hint or FORMAT
        raise


def _read_problem(path: Path) -> Problem:
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", hint=FORMAT) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint=FORMAT) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a problem is a JSON object")
    reader = _Fields(path, document)
    reader.refuse_unknown(_KEYS)
    machine_limit = reader.whole("vm_limit", 1, MACHINES_MAX)
    boot_s = reader.number("boot_s", 0.0, 86400.0, default=0.0)
    return Problem(
        catalog=_catalog(reader, boot_s),
        source=reader.region("source"),
        destinations=_destinations(reader),
        volume_gb=reader.number("volume_gb", 1e-9, 1e12),
        goal=_goal(reader),
        machines_per_region=machine_limit,
        connections_per_machine=reader.whole("connections_per_vm", 1, CONNECTIONS_MAX, default=64),
        boot_s=boot_s,
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    """Strict access to a JSON object."""

    path: Path
    document: Mapping[str, Any]
    where: str = ""

    def wrong(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.path}: {self.where}{key}: {what}")

    def refuse_unknown(self, known: set[str]) -> None:
        for key in self.document:
            if key not in known:
                raise self.wrong(key, f"unknown; known: {', '.join(sorted(known))}")

    def get(self, key: str) -> Any:
        if key not in self.document:
            raise self.wrong(key, "is missing")
        return self.document[key]

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, f"{value!r} is not a string")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        if default is not None and key not in self.document:
            return default
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.wrong(key, f"{value!r} is not a number")
        if not low <= value <= high:
            raise self.wrong(key, f"{value} is not between {low:g} and {high:g}")
        return float(value)

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.number(key, low, high, default)
        if value != int(value):
            raise self.wrong(key, f"{value} is not a whole number")
        return int(value)

    def region(self, key: str) -> Region:
        try:
            return Region.parse(self.text(key))
        except ValueError as error:
            raise self.wrong(key, str(error)) from None

    def inner(self, key: str) -> _Fields:
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, f"{value!r} is not an object")
        return _Fields(self.path, value, f"{self.where}{key}.")


def _destinations(reader: _Fields) -> tuple[Region, ...]:
    if "destinations" not in reader.document:
        return (reader.region("destination"),)
    if "destination" in reader.document:
        raise reader.wrong("destinations", "cannot be combined with destination; name one of the two")
    named = reader.get("destinations")
    if not isinstance(named, list) or not named:
        raise reader.wrong("destinations", f"{named!r} is not a list of regions")
    return tuple(_Fields(reader.path, {"destinations": name}).region("destinations") for name in named)


def _goal(reader: _Fields) -> Goal:
    goal = reader.inner("goal")
    keys = set(goal.document)
    if keys in ({"min_throughput_gbps"}, {"min_throughput_gbps", "exactly"}):
        exactly = goal.document.get("exactly", False)
        if not isinstance(exactly, bool):
            raise goal.wrong("exactly", f"{exactly!r} is neither true nor false")
        return MinThroughput(goal.number("min_throughput_gbps", 1e-9, GBPS_MAX * MACHINES_MAX), exactly)
    if keys == {"max_cost_usd"}:
        return MaxCost(goal.number("max_cost_usd", 1e-12, 1e15))
    if keys == {"deadline_s"}:
        return Deadline(goal.number("deadline_s", 1e-9, 1e12))
    named: dict[str, Goal] = {"cheapest": Cheapest(), "fastest": Fastest(), "soonest": Soonest()}
    if len(keys) == 1 and (name := next(iter(keys))) in named and goal.document[name] is True:
        return named[name]
    raise ConfigError(f"{reader.path}: goal: cannot be understood", hint=f"a goal is {_GOALS}")


def _catalog(reader: _Fields, boot_s: float) -> Catalog:
    grid_path = reader.path.parent / reader.text("throughput_csv")
    price_path = reader.path.parent / reader.text("price_csv")
    column = reader.text("rate_column") if "rate_column" in reader.document else "gbps"
    measured = Origin("imported", grid_path.name, "")
    listed = Origin("imported", price_path.name, "")
    links = {}
    for row in read_rows(grid_path, [["src"], ["dst"], [column]]):
        pair = (row.region("src"), row.region("dst"))
        links[pair] = Link(row.number(column, low=0.0, high=GBPS_MAX), measured)
    prices = {}
    for row in read_rows(price_path, [["src"], ["dst"], ["usd_per_gb"]]):
        tier = PriceTier(0.0, row.number("usd_per_gb", low=0.0, high=USD_PER_GB_MAX))
        prices[row.region("src"), row.region("dst")] = EgressPrice((tier,), listed)
    grid = Grid(links)
    providers = reader.inner("providers")
    offers = {name.lower(): (_offer(providers, name, boot_s),) for name in providers.document}
    for region in grid.regions():
        if region.provider not in offers:
            raise reader.wrong("providers", f"{region.provider} is missing, but {region} is in {grid_path.name}")
    return Catalog(places={}, prices=PriceBook(prices), grid=grid, offers=offers)


def _offer(providers: _Fields, name: str, boot_s: float) -> MachineOffer:
    fields = providers.inner(name)
    fields.refuse_unknown({"egress_gbps", "ingress_gbps", "vm_usd_per_hour"})
    origin = Origin("imported", providers.path.name, "")
    egress = fields.number("egress_gbps", 1e-6, GBPS_MAX)
    ingress = fields.number("ingress_gbps", 1e-6, GBPS_MAX)
    machine = MachineType(name.lower(), f"{name.lower()}-vm", 0, max(egress, ingress), egress, ingress, boot_s, origin)
    return MachineOffer(machine, fields.number("vm_usd_per_hour", 0.0, 1e6), spot=False, origin=origin)
