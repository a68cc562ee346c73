"""The section and the plot of the nodes of a site: applications over a balancer, and nodes that grow with them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.acceleration.page import wrapped
from benchmarks.plots import Frame, LinePlot, line_plots
from benchmarks.taas import run, site, world
from benchmarks.taas.rows import Figure, Row, rate_mbps, rows_at

PLOT = "taas-fig8-site.svg"
GROWING = "as many nodes as applications"


def lines_of(rows: Sequence[Row]) -> dict[str, list[Figure | None]]:
    """Return the rate of an application by the number of applications, for each way to use nodes."""

    def line(option: str) -> list[Figure | None]:
        return [rate_mbps(rows_at(rows, option, count)) for count in run.APPLICATIONS]

    by_nodes = {nodes: line(f"{run.SPREAD}, {nodes}") for nodes in run.NODES}
    return {
        **{f"{nodes} {'node' if nodes == 1 else 'nodes'}": found for nodes, found in by_nodes.items()},
        GROWING: [by_nodes[count][number] for number, count in enumerate(run.APPLICATIONS)],
        run.ONE_NODE: line(run.ONE_NODE),
        f"{world.SERVICE_NODES} nodes, {run.BALANCED}": line(run.BALANCED),
    }


def section(rows: Sequence[Row]) -> list[str]:
    """Return the section as lines."""
    alone = rate_mbps(rows_at(rows, f"{run.SPREAD}, {world.SERVICE_NODES}", 1))
    cells = []
    for name, line in lines_of(rows).items():
        if any(line):
            cells.append(f"| {name} | " + " | ".join(_shown(one, alone) for one in line) + " |")
    paper = (
        "a load balancer spreads the requests of the applications over the nodes of the service. With 5 applications "
        "on 5 nodes each is at most 25% slower than one alone on all 5. So the service keeps its quality if its nodes "
        "grow with the number of applications."
    )
    note = (
        "Columns are numbers of applications; in brackets: to one application with all "
        f"{world.SERVICE_NODES} nodes. The nodes are the machines of one region, and here all applications share their "
        f"network cards, of {site.NODE_LINKS} wide-area links each. The paper does not state this ratio: it is an "
        "assumption. Each gateway is started where the fewest run, and the lead of each application spreads its chunks "
        f"over all nodes ([decision 53](../decisions/0053-balancer.md)). *{run.ONE_NODE}*: each application has one "
        f"gateway, on a node of its own. *{run.BALANCED}*: all bytes of all applications pass one HAProxy before the "
        "nodes."
    )
    columns = ["rate of an application [Mbit/s]", *(f"{count}" for count in run.APPLICATIONS)]
    return [
        "## Fig. 8, nodes of a site",
        "",
        wrapped(f"Paper: {paper}"),
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(run.APPLICATIONS),
        *cells,
        "",
        wrapped(note),
        "",
        f"![rate over applications, by nodes]({PLOT})",
    ]


def _shown(rate: Figure | None, alone: Figure | None) -> str:
    """Return a rate, and how far it is from that of one application alone on all nodes, if that was measured."""
    if rate is None:
        return ""
    return rate.shown(2) + (f" ({rate.relative(alone)})" if alone else "")


def plot(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the rate of an application over the number of applications where all points have rows."""
    found = {name: line for name, line in lines_of(rows).items() if all(line)}
    lines = {name: [one.mean if one else "" for one in line] for name, line in found.items()}
    spreads = {name: [(one.spread or 0.0) if one else 0.0 for one in line] for name, line in found.items()}
    frame = Frame("Fig. 8, nodes of a site: rate of an application", "applications", "Mbit/s")
    return {PLOT: line_plots([LinePlot(frame, run.APPLICATIONS, lines, spreads)])} if lines else {}
