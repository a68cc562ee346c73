"""`python -m benchmarks.sky [SUITE…] [--quick]`: measure, print Markdown, write it and the figures to a folder."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from benchmarks.measure import load
from benchmarks.sky.adaptation import measure_adaptation
from benchmarks.sky.capacity import measure_capacity
from benchmarks.sky.compression import measure_compression
from benchmarks.sky.connections import measure_connections
from benchmarks.sky.deduplication import measure_deduplication
from benchmarks.sky.flow import measure_flow
from benchmarks.sky.machines import measure_machines, measure_relays
from benchmarks.sky.overlay import measure_overlay
from benchmarks.sky.sizes import measure_sizes
from benchmarks.sky.skyplane import measure_skyplane
from benchmarks.sky.stalls import measure_stalls
from benchmarks.sky.straggler import measure_straggler
from benchmarks.sky.systems import measure_systems, measure_systems_2022
from benchmarks.sky.table import Table
from benchmarks.sky.window import measure_window
from benchmarks.tables import machine
from testbed.sky import unavailable

SUITES = {
    "window": measure_window,
    "connections": measure_connections,
    "capacity": measure_capacity,
    "overlay": measure_overlay,
    "machines": measure_machines,
    "relays": measure_relays,
    "systems": measure_systems,
    "systems-2022": measure_systems_2022,
    "flow": measure_flow,
    "adaptation": measure_adaptation,
    "straggler": measure_straggler,
    "stalls": measure_stalls,
    "compression": measure_compression,
    "deduplication": measure_deduplication,
    "sizes": measure_sizes,
    "skyplane": measure_skyplane,
}

#: Suites that run on this machine's own network.
WITHOUT_SKY = {"deduplication", "skyplane"}


def main() -> int:
    """Run the given suites, by default all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sky", description="Measure TCP over an emulated WAN.")
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES), help="suites to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="few short runs, to check that the benchmark works")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks/sky"), help="folder for SUITE.md, .json")
    arguments = parser.parse_args()
    suites = arguments.suites or list(SUITES)
    if unknown := [name for name in suites if name not in SUITES]:
        parser.error(f"no such suite: {', '.join(unknown)}")
    if set(suites) - WITHOUT_SKY and (reason := unavailable()):
        print(f"error: {reason}", file=sys.stderr)
        return 9
    for name in suites:
        before = load()
        table = SUITES[name](arguments.quick)
        _keep(arguments.out, name, table, f"load {before} before, {load()} after")
    return 0


def _keep(out: Path, name: str, table: Table, loads: str) -> None:
    about = machine()
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    where = f"{date}, {about['cores']} cores of {about['cpu']}, Linux {about['kernel']}; {loads}."
    text = f"## {table.title}\n\n{where}\n\n{table.markdown()}\n"
    print(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(text)
    document = {"about": {**about, "date": date, "load": loads}, "columns": table.columns, "rows": table.rows}
    (out / f"{name}.json").write_text(json.dumps(document, indent=1))
    if table.picture:
        (out / f"{name}.svg").write_text(table.picture)


if __name__ == "__main__":
    sys.exit(main())
