"""Prices from the clouds' price APIs: one CSV file per provider in the user's part of the catalog.

A file holds egress and machine prices together, so that one rename replaces all of a provider's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tradewind.catalog.locked import one_writer
from tradewind.catalog.tables import USD_PER_HOUR_MAX, Row, format_tiers, read_rows, write_table
from tradewind.model.origin import Origin
from tradewind.model.price import EgressRule
from tradewind.model.records import dataclass
from tradewind.model.region import Region

__all__ = ["ListedMachinePrice", "read_machine_price", "read_refreshed", "refreshed_files", "store_refreshed"]

HEADER = (
    "figure",
    "region",
    "dst",
    "usd_per_gb_from_gb",
    "unit",
    "counted",
    "type",
    "spot",
    "usd_per_hour",
    "source",
    "date",
    "method",
)


@dataclass(frozen=True, slots=True)
class ListedMachinePrice:
    """Price of a machine type in a region."""

    region: Region
    type: str
    spot: bool
    usd_per_hour: float
    origin: Origin


def refreshed_files(folder: Path) -> list[Path]:
    """Return the files of refreshed prices of all providers."""
    return sorted(folder.glob("refreshed-*.csv"))


def read_refreshed(path: Path) -> Iterator[EgressRule | ListedMachinePrice]:
    """Yield machine prices and egress rules; each rule has one region as its source, specific rules first.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["figure"], ["region"]]):
        if row.fields["figure"] == "egress":
            origin = row.origin(path.name, "refreshed")
            price = row.egress_price("usd_per_gb_from_gb", origin)
            yield EgressRule(str(row.region("region")), row.fields.get("dst", ""), price)
        elif row.fields["figure"] == "machine":
            yield read_machine_price(row, row.origin(path.name, "refreshed"))
        else:
            raise row.wrong("figure", f"{row.fields['figure']!r} is neither egress nor machine")


def read_machine_price(row: Row, origin: Origin) -> ListedMachinePrice:
    """Return the price of a line: region, type, usd_per_hour[, spot]. Raises ConfigError."""
    spot = row.switch("spot")
    usd_per_hour = row.number("usd_per_hour", low=0, high=USD_PER_HOUR_MAX)
    return ListedMachinePrice(row.region("region"), row.fields.get("type", ""), spot, usd_per_hour, origin)


def store_refreshed(
    folder: Path,
    provider: str,
    rules: Iterable[EgressRule],
    machines: Iterable[ListedMachinePrice],
) -> Path:
    """Replace a provider's figures of the same kind and region; keep the others. Returns the file."""
    path = folder / f"refreshed-{provider}.csv"
    new_rules, new_machines = list(rules), list(machines)
    with one_writer(folder):
        _store_locked(path, new_rules, new_machines)
    return path


def _store_locked(path: Path, new_rules: list[EgressRule], new_machines: list[ListedMachinePrice]) -> None:
    replaced = {("egress", rule.src) for rule in new_rules} | {("machine", str(m.region)) for m in new_machines}
    for kept in read_refreshed(path) if path.exists() else ():
        if isinstance(kept, EgressRule):
            if ("egress", kept.src) not in replaced:
                new_rules.append(kept)
        elif ("machine", str(kept.region)) not in replaced:
            new_machines.append(kept)
    # A stable sort: within a region the order of the rules decides which one applies.
    new_rules.sort(key=lambda rule: rule.src)
    new_machines.sort(key=lambda machine: (machine.region, machine.type, machine.spot))
    write_table(path, HEADER, [*map(_rule_row, new_rules), *map(_machine_row, new_machines)])


def _rule_row(rule: EgressRule) -> list[str]:
    origin = rule.price.origin
    price = rule.price
    figures = ["egress", rule.src, rule.dst, format_tiers(price), price.unit, price.counted, "", "", ""]
    return [*figures, origin.source, origin.date, origin.method]


def _machine_row(machine: ListedMachinePrice) -> list[str]:
    spot, usd_per_hour = "yes" if machine.spot else "no", f"{machine.usd_per_hour:.10g}"
    figures = ["machine", str(machine.region), "", "", "", "", machine.type, spot, usd_per_hour]
    return [*figures, machine.origin.source, machine.origin.date, machine.origin.method]
