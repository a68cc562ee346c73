"""The simulated figures of the CloudPilot paper (section 7.2) as cells: one problem for one algorithm each.

`large` is no figure of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.placement.use_cases import USE_CASES, UseCaseSettings

SOURCE = "Tokyo"
"""Region of the source of Fig. 7 and of all figures that keep its settings."""
FLOWS = 30
"""Flows of Fig. 8. The paper does not state those of Figs. 9 to 13."""
CENTS_PER_FLOW = 50.0
UNLIMITED_CENTS = 1e6
CHEAP = ("f-fct", "f-cost", "1p")
OF_THE_PAPER = (*CHEAP, "2p", "2p-rb")
ALL = (*OF_THE_PAPER, "auto")
FIG_14, LARGE = "fig14", "large"
AUTO_LIMIT_S = 2.0
"""CPU time of `auto` in Figs. 7 to 13, half of its default: there are 2,500 runs of it."""
GB = 1e9


@dataclass(frozen=True)
class Cell:
    """One point of a figure for one algorithm; each seed gives another problem."""

    figure: str
    series: str
    x: float
    algorithm: str
    case: str
    flows: int
    settings: UseCaseSettings
    regions: int | None = None
    """So many random points of the earth; None for the regions of the paper."""

    @property
    def limit_s(self) -> float | None:
        """Limit of CPU time of the algorithm; None for its default, which Fig. 14 and `large` measure."""
        return None if self.figure in (FIG_14, LARGE) else AUTO_LIMIT_S

    def key(self, seed: int) -> str:
        """Return what identifies a run of this cell."""
        return f"{self.figure}/{self.series}/{self.x:g}/{self.algorithm}/{seed}"


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str
    title: str
    x_label: str
    paper: str
    """The statement of the paper; its plots have no table of figures."""
    cells: tuple[Cell, ...]
    metrics: Sequence[str] = ("acceleration",)
    """Figures that the tables show, by name in a run."""


BASE = UseCaseSettings(source=SOURCE, budget_cents=CENTS_PER_FLOW * FLOWS)


def figures(quick: bool = False) -> Mapping[str, Figure]:
    """Return all figures by name. `quick` has few small cells of each, without the slow algorithms."""
    made = [figure_7(), figure_8(), figure_9(), figure_10(), figure_11(), figure_12(), figure_13(), figure_14()]
    made.append(large())
    return {figure.name: _small(figure) if quick else figure for figure in made}


def _small(figure: Figure) -> Figure:
    kept = {cell.x for cell in figure.cells}
    few = sorted(kept)[:2]
    fast = [cell for cell in figure.cells if cell.algorithm in CHEAP] or figure.cells
    cells = [replace(cell, flows=min(cell.flows, 6), regions=cell.regions and min(cell.regions, 6)) for cell in fast]
    return replace(figure, cells=tuple(cell for cell in cells if cell.x in few))


def figure_7() -> Figure:
    """Growing number of flows, one-to-many from Tokyo, 50 cents per flow."""
    cells = [
        Cell("fig7", "", flows, algorithm, "one-to-many", flows, UseCaseSettings(source=SOURCE))
        for flows in (10, 20, 30, 40, 50, 60)
        for algorithm in ALL
    ]
    paper = (
        "The proxy-greedy algorithms (1p, 2p, 2p-rb) exceed 2×, do better than the flow-greedy ones (f-fct, f-cost) "
        "and use fewer proxies. Flow-greedy ones prefer two proxies for a flow, proxy-greedy ones share one."
    )
    metrics = ("acceleration", "total_s", "proxies", "paths")
    return Figure("fig7", "Fig. 7: number of flows, one-to-many", "flows", paper, tuple(cells), metrics)


def figure_8() -> Figure:
    """Growing budget, 30 flows."""
    dollars = (1, 3, 5, 7, 9, 12, 14.5, 18, 22, 26, 30, 40)
    cells = [
        Cell("fig8", "", usd, algorithm, "one-to-many", FLOWS, replace(BASE, budget_cents=usd * 100))
        for usd in dollars
        for algorithm in ALL
    ]
    unlimited = replace(BASE, budget_cents=UNLIMITED_CENTS)
    cells.append(Cell("fig8", "without a limit", 0, "f-fct", "one-to-many", FLOWS, unlimited))
    paper = (
        "About 3.1× for $14.50. The proxy-greedy algorithms are ahead at low and medium budgets. At high ones f-fct "
        "reaches the acceleration of an unlimited budget, and the others do not."
    )
    return Figure("fig8", "Fig. 8: budget, one-to-many, 30 flows", "budget [USD]", paper, tuple(cells))


def figure_9() -> Figure:
    """Traffic costs twice as much, instances nothing."""
    settings = replace(BASE, egress_cents_per_gb=16.0, setup_cents=0.0)
    cells = [Cell("fig9", "", 16, name, "one-to-many", FLOWS, settings) for name in ALL]
    paper = "Almost all algorithms reach the same acceleration, mostly over two proxies; 1p has the lowest."
    metrics = ("acceleration", "proxies", "paths")
    title = "Fig. 9: 16 ¢ per GB, free instances"
    return Figure("fig9", title, "egress [¢/GB]", paper, tuple(cells), metrics)


def figure_10() -> Figure:
    """Instances cost twice as much, traffic nothing."""
    settings = replace(BASE, egress_cents_per_gb=0.0, setup_cents=100.0)
    cells = [Cell("fig10", "", 100, name, "one-to-many", FLOWS, settings) for name in ALL]
    paper = "f-cost and the proxy-greedy algorithms are ahead: they share instances and use more single proxies."
    metrics = ("acceleration", "proxies", "paths")
    title = "Fig. 10: free traffic, $1 per instance"
    return Figure("fig10", title, "setup [¢]", paper, tuple(cells), metrics)


def figure_11() -> Figure:
    """Growing size of a flow, with handshakes and slow start, f-fct."""
    sizes = (0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 1, 2, 4, 8, 16)
    cells = []
    for size_gb in sizes:
        sized = replace(BASE, size_bytes=size_gb * GB, slow_start=True)
        growing = replace(sized, budget_cents=CENTS_PER_FLOW * FLOWS * size_gb / 2)
        cells.append(Cell("fig11", "fixed budget", size_gb, "f-fct", "one-to-many", FLOWS, sized))
        cells.append(Cell("fig11", "budget that grows with the size", size_gb, "f-fct", "one-to-many", FLOWS, growing))
    paper = (
        "Small files gain nothing, larger ones more. With a fixed budget the acceleration falls again when traffic "
        "becomes dear; with a budget that grows with the size it does not."
    )
    return Figure("fig11", "Fig. 11: size of a flow, f-fct, slow start", "size [GB]", paper, tuple(cells))


def figure_12() -> Figure:
    """Growing last mile, instances of 2 and 20 Gbit/s."""
    cells = [
        Cell(
            "fig12",
            f"instances of {capacity // 1000} Gbit/s",
            last_mile,
            algorithm,
            "one-to-many",
            FLOWS,
            replace(BASE, last_mile_mbps=last_mile, capacity_mbps=capacity),
        )
        for capacity in (2_000, 20_000)
        for last_mile in (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
        for algorithm in ALL
    ]
    paper = "2p-rb: beyond some 100 Mbit/s the acceleration rises steeply, most of all with 20 Gbit/s."
    return Figure("fig12", "Fig. 12: last mile", "last mile [Mbit/s]", paper, tuple(cells))


def figure_13() -> Figure:
    """Growing capacity of an instance, last miles of 0.5, 1 and 5 Gbit/s."""
    cells = [
        Cell(
            "fig13",
            f"last mile of {last_mile} Mbit/s",
            capacity,
            algorithm,
            "one-to-many",
            FLOWS,
            replace(BASE, last_mile_mbps=last_mile, capacity_mbps=capacity),
        )
        for last_mile in (500, 1_000, 5_000)
        for capacity in (500, 1_000, 2_000, 5_000, 10_000, 20_000)
        for algorithm in ALL
    ]
    paper = (
        "2p-rb: the acceleration rises with the capacity, most of all once it exceeds the last mile, until the budget "
        "limits it. Below 5 Gbit/s, a last mile of 1 Gbit/s sometimes gains more than one of 5 Gbit/s."
    )
    return Figure("fig13", "Fig. 13: capacity of an instance", "capacity [Mbit/s]", paper, tuple(cells))


def figure_14() -> Figure:
    """The four use cases, 60 flows, 50 cents each."""
    cells = [
        Cell("fig14", case, number, name, case, 60, UseCaseSettings())
        for number, case in enumerate(USE_CASES)
        for name in ALL
    ]
    paper = (
        "The abstract states 2.7, 3.6, 3.9 and 4.3× for 50 ¢ per flow in the four use cases, without saying which is "
        "which. Section 7.2 says that the localized case has the smallest acceleration, so 2.7× may be that one."
    )
    metrics = ("acceleration", "proxies", "paths")
    return Figure("fig14", "Fig. 14: use cases, 60 flows", "use case", paper, tuple(cells), metrics)


def large() -> Figure:
    """A large problem for `auto`: 500 flows and 60 regions."""
    settings = UseCaseSettings()
    cells = (Cell(LARGE, "", 500, "auto", "many-one-to-one", 500, settings, regions=60),)
    title = "A large problem: 500 flows, 60 random regions, many-one-to-one"
    return Figure(LARGE, title, "flows", "nothing of this size.", cells, ("acceleration", "total_s", "proxies"))


def cells_of(chosen: Sequence[Figure]) -> Iterator[Cell]:
    """Yield the cells of some figures."""
    for figure in chosen:
        yield from figure.cells
