"""Runs the cells of the figures, and keeps each result as a line of a file, so a later run continues."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.acceleration.emulated import kept_rows
from benchmarks.measure import load
from benchmarks.taas import site
from benchmarks.taas.transfers import Launcher, size_for, transfer
from benchmarks.taas.world import (
    AGGREGATE,
    SERVICE_NODES,
    TYPES,
    Pools,
    Route,
    asymmetric,
    end_to_end,
    launch,
    multi_route,
    network,
    symmetric,
    typed_network,
    typed_routes,
)
from tradewind.errors import SkyInvalid, TradewindError
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.running import Sky

FIGURES = ("fig4", "fig5", "fig7", "fig8", "site", "fig9", "fig10")
"""`site` is Fig. 8 with nodes that all applications share, and as many nodes as one likes."""
END_TO_END, MULTI_ROUTE = "end to end", "multi-route"
ASYMMETRIC, SYMMETRIC, OWN_NODE = "service, asymmetric", "service, symmetric", "service, one node each"
SPREAD, ONE_NODE, BALANCED = "spread by the leads", "one node each", "through HAProxy"
"""How applications use the nodes of a site. In the option of a row, the number of nodes follows the first."""
SMALL_TO_LARGE = "small to xlarge"
OPTIONS = (END_TO_END, MULTI_ROUTE, ASYMMETRIC, SYMMETRIC)
"""Ways to transfer between the sites, of which a user chooses one."""
EXTRA_NODES, LOADED_NODES, TYPED_NODES = 5, 4, 3
"""A user's own nodes: as many as the paper's service has, those of its Fig. 9, and those of its Fig. 5."""
ROUTES = (1, 2, 3, 4, 6, 8)
APPLICATIONS = NODES = (1, 2, 3, 4, 5)
UNLOADED = 1.0
SHARES = (UNLOADED, 0.6, 0.5, 0.25)
"""Parts of the time that relays may run: idle nodes, a load of 40%, of 100%, and of 100% with priority."""
VOLUMES_GB = (30, 60, 90, 120)
BYTES_PER_GB = 42_000
"""What 1 GB is scaled to. 120 GB take 20 s end to end."""
SECONDS = 12.0
"""Approximate duration of the transfers of Figs. 4 to 9."""


@dataclass(frozen=True)
class Where:
    """A sky. Cells with the same name run in the same one, and beside what `around` starts in it."""

    name: str
    made: Callable[[], EmulatedNetwork] = field(compare=False)
    around: Callable[[Sky], AbstractContextManager[None]] = field(compare=False, default=lambda _: nullcontext())


TYPED = Where("typed", typed_network)


@dataclass(frozen=True)
class Cell:
    """One point of a figure."""

    figure: str
    option: str
    x: float
    applications: Sequence[Sequence[Route]]
    size_bytes: int
    share: float = 1.0
    where: Where = field(default_factory=lambda: Where("plain", network))
    pools: Pools | None = None
    launcher: Launcher = launch

    def key(self, round_: int) -> str:
        """Return what identifies a run of this cell."""
        return f"{self.figure}/{self.option}/{self.x:g}/{round_}"


def cells() -> list[Cell]:
    """Return all points, by figure."""
    options = {
        END_TO_END: end_to_end(),
        MULTI_ROUTE: multi_route(EXTRA_NODES),
        ASYMMETRIC: asymmetric(),
        SYMMETRIC: symmetric(),
    }
    made = [
        Cell("fig4", MULTI_ROUTE, routes, [multi_route(routes - 1)], size_for(SECONDS, min(routes, AGGREGATE)))
        for routes in ROUTES
    ]
    for count in ROUTES:
        size_bytes = size_for(SECONDS, min(count, AGGREGATE))
        between = [typed_routes("small", "xlarge", count - 1)]
        made.append(Cell("fig4", SMALL_TO_LARGE, count, between, size_bytes, where=TYPED))
    for name, routes in options.items():
        made.append(Cell("fig7", name, 0, [routes], size_for(SECONDS, min(len(routes), AGGREGATE))))
    made += [
        Cell("fig10", name, volume, [routes], volume * BYTES_PER_GB)
        for volume in VOLUMES_GB
        for name, routes in options.items()
    ]
    for count in APPLICATIONS:
        apps = range(count)
        full = size_for(SECONDS, AGGREGATE)
        made.append(Cell("fig8", ASYMMETRIC, count, [asymmetric(app) for app in apps], full))
        made.append(Cell("fig8", SYMMETRIC, count, [symmetric(app) for app in apps], full))
        made.append(Cell("fig8", OWN_NODE, count, [asymmetric(app, [app]) for app in apps], size_for(SECONDS, 1)))
    for sender in TYPES:
        for receiver in TYPES:
            between = [typed_routes(sender, receiver, TYPED_NODES)]
            size_bytes = size_for(SECONDS, AGGREGATE)
            made.append(Cell("fig5", f"{sender} to {receiver}", TYPED_NODES, between, size_bytes, where=TYPED))
    made += _site_cells()
    loaded = multi_route(LOADED_NODES)[1:]
    made += [Cell("fig9", MULTI_ROUTE, share, [loaded], size_for(SECONDS, AGGREGATE), share) for share in SHARES]
    made.append(Cell("fig9", ASYMMETRIC, UNLOADED, [asymmetric()], size_for(SECONDS, AGGREGATE)))
    return made


def _site_cells() -> list[Cell]:
    """Return the points of a site by numbers of applications and nodes."""
    made = []
    for nodes in NODES:
        here = Where(f"site {nodes}", partial(site.site_network, nodes))
        for count in APPLICATIONS:
            # All nodes together carry no more than their cards.
            rate = min(nodes, AGGREGATE, nodes * site.NODE_LINKS / count)
            routes = [site.routes_over(app, nodes) for app in range(count)]
            pools = site.site_pools(count, nodes)
            size_bytes = size_for(SECONDS, rate)
            made.append(
                Cell("site", f"{SPREAD}, {nodes}", count, routes, size_bytes, 1.0, here, pools, site.site_launch)
            )
        routes = [site.routes_over(app, 1) for app in range(nodes)]
        pools = site.own_node_pools(nodes, nodes)
        made.append(Cell("site", ONE_NODE, nodes, routes, size_for(SECONDS, 1), 1.0, here, pools, site.site_launch))
    there = Where("balanced", site.balanced_network, site.balancer)
    for count in APPLICATIONS:
        routes = [site.routes_over(app, SERVICE_NODES) for app in range(count)]
        pools, size_bytes = site.balanced_pools(count), size_for(SECONDS, AGGREGATE)
        made.append(Cell("site", BALANCED, count, routes, size_bytes, 1.0, there, pools, site.balanced_launch))
    return made


def measure(chosen: Sequence[str], file: Path, *, rounds: int, minutes: float, quick: bool) -> list[dict[str, Any]]:
    """Measure what the file does not have yet, until the time is over, and return its valid rows."""
    done = {row["key"] for row in kept_rows(file) if "invalid" not in row}
    deadline_s = time.monotonic() + minutes * 60
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as kept:
        kept.write("\n" if file.stat().st_size else "")  # Ends a line that an interrupted run has cut.
        for row in _rows(_chosen(chosen, quick), done, rounds):
            if "invalid" in row:
                print(f"invalid: {row['key']}: {row['invalid']}", file=sys.stderr)
            kept.write(json.dumps({**row, "load": load()}) + "\n")
            kept.flush()
            if time.monotonic() > deadline_s:
                print("time is over: a later run continues", file=sys.stderr)
                break
    return [row for row in kept_rows(file) if "invalid" not in row]


def _chosen(figures: Sequence[str], quick: bool) -> list[Cell]:
    wanted = [cell for figure in figures for cell in cells() if cell.figure == figure]
    return wanted[:1] if quick else wanted


def _rows(wanted: Sequence[Cell], done: set[str], rounds: int) -> Iterator[dict[str, Any]]:
    left = [(cell, round_) for round_ in range(rounds) for cell in wanted if cell.key(round_) not in done]
    for where in dict.fromkeys(cell.where for cell, _ in left):
        with Sky.up(where.made()) as sky, where.around(sky):
            for cell, round_ in left:
                if cell.where == where:
                    yield _row(sky, cell, round_)


def _row(sky: Sky, cell: Cell, round_: int) -> dict[str, Any]:
    about = {"key": cell.key(round_), "figure": cell.figure, "option": cell.option, "x": cell.x}
    sky.reset_stats()
    try:
        results = transfer(
            sky,
            cell.applications,
            cell.size_bytes,
            round_,
            share=cell.share,
            pools=cell.pools,
            launcher=cell.launcher,
        )
        sky.check_valid()
    except SkyInvalid as error:
        return {**about, "invalid": str(error)}
    except (TradewindError, RuntimeError) as error:
        return {**about, "invalid": f"{type(error).__name__}: {error}"}
    return {
        **about,
        "size_bytes": cell.size_bytes,
        "elapsed_s": [each.elapsed_s for each in results],
        "windows_mbps": [each.windows_mbps for each in results],
    }
