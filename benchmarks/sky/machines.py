"""More machines on the direct path (Skyplane, Fig. 9b), compared with overlays of as many machines (Fig. 10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.plots import Frame, line_plot
from benchmarks.sky.carry import carried, rates
from benchmarks.sky.table import Figure, Table
from tradewind.catalog.load import load_catalog
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.fleet.sky_world import sky_world
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Fastest
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.region import Region
from tradewind.planner.baseline import direct
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky

#: 2 Gbit/s become 6 Mbit/s, so that a small host can emulate eight machines and overlays over a mesh.
SCALE = 0.003
SECONDS = 9.0
COUNTS = (1, 2, 4, 8)
OVERLAY_COUNTS = (1, 2, 4)
#: Source, sink and possible relays, for a route between continents and one within a continent.
BETWEEN = ("azure:eastus", "aws:ap-northeast-1", "azure:japaneast", "azure:westus2")
WITHIN = ("aws:us-east-1", "gcp:us-west1", "aws:us-west-2", "gcp:us-central1")


def measure_machines(quick: bool) -> Table:
    """Return Fig. 9b: the direct path with an increasing number of machines at both ends."""
    table = Table(
        f"Machines against rate, direct {BETWEEN[0]} → {BETWEEN[1]}, rates × {SCALE:g}",
        ["machines per region", "predicted [Mbit/s]", "measured [Mbit/s]", "measured / predicted"],
    )
    counts = COUNTS[:2] if quick else COUNTS
    world = World(BETWEEN[:2], max(counts), SCALE)
    with world.sky as sky:
        for count in counts:
            overlay = world.straight(count)
            table.rows.append([count, *rates(overlay, carried(sky, SCALE, overlay, 6.0 if quick else SECONDS))])
    lines = {"predicted": [row[1] for row in table.rows], "measured": [row[2] for row in table.rows]}
    table.picture = line_plot(Frame("Rate over machines", "machines per region", "Mbit/s"), counts, lines)
    return table


def measure_relays(quick: bool) -> Table:
    """Return Fig. 10: the same number of machines on the direct path and in an overlay."""
    table = Table(
        f"Overlay against more machines on the direct path, rates × {SCALE:g}, Mbit/s",
        ["route", "machines per region", "direct: predicted", "measured", "overlay: predicted", "measured", "gain"],
    )
    for names in (BETWEEN,) if quick else (BETWEEN, WITHIN):
        counts = OVERLAY_COUNTS[:1] if quick else OVERLAY_COUNTS
        world = World(names, max(counts), SCALE)
        with world.sky as sky:
            for count in counts:
                row: list[Figure] = [f"{names[0]} → {names[1]}", count]
                for overlay in (world.straight(count), solve_overlay(world.transfer(count), Fastest())):
                    row += rates(overlay, carried(sky, SCALE, overlay, 6.0 if quick else SECONDS))[:2]
                gain: Figure = "–"
                if isinstance(row[3], float) and isinstance(row[5], float):
                    gain = row[5] / row[3]
                table.rows.append([*row, gain])
    return table


class World:
    """A running sky with plans for it. Of its regions the first is the source, the second the sink."""

    def __init__(self, names: Sequence[str], machines: int, scale: float, base: Catalog | None = None) -> None:
        """Start the sky. Links, machines and prices are from `base`, by default the packaged catalog."""
        base = load_catalog() if base is None else base
        self._ends = Region.parse(names[0]), Region.parse(names[1])
        regions = [Region.parse(name) for name in names]
        document = sky_world(base, regions, scale, machines=dict.fromkeys(regions, machines))
        network = network_from_document(document, Path())
        self._catalog, self._scale = sky_catalog(network, base), scale
        self.sky = Sky.up(network)

    def transfer(self, machines: int) -> Transfer:
        """Return a transfer of 16 GB, scaled, with at most `machines` in each region."""
        return prepare(self._catalog, *self._ends, 16 * self._scale, PlanningLimits(machines_per_region=machines))

    def straight(self, machines: int) -> UnicastOverlay:
        """Return the plan of the direct path."""
        plan = direct(self.transfer(machines))
        assert plan is not None, "the catalog has a link between all these regions"
        return plan
