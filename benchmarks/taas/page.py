"""The page of the benchmark: tables beside the paper's words, plots, and prices and energy from the measured times."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.acceleration.page import Page, wrapped
from benchmarks.plots import Frame, line_plot
from benchmarks.taas import run, world
from benchmarks.tables import machine
from tradewind.market.energy import energy_ratio
from tradewind.market.margins import PAPER_RATIOS, TimeRatios, e2e_usd, least_extra_nodes, margin, umr_usd
from tradewind.market.money import exact

PAGE_FILE = "taas.md"
MACHINE_USD_PER_HOUR, OUTBOUND_USD_PER_GB = exact("0.10"), exact("0.09")
"""As in `tradewind market margins`."""
LARGEST_GB = run.VOLUMES_GB[-1]
LOADS = dict(zip(run.SHARES, ("none", "40%", "100%", "100%, with priority"), strict=True))

Row = Mapping[str, Any]


def page_of(rows: Sequence[Row]) -> Page:
    """Return the page of the figures that have rows."""
    by_figure = {name: [row for row in rows if row["figure"] == name] for name in run.FIGURES}
    sections = {
        "fig4": _routes,
        "fig5": _types,
        "fig7": _options,
        "fig8": _concurrency,
        "fig9": _load,
        "fig10": _volumes,
    }
    parts = [_head(rows)]
    parts += ["\n".join([*sections[name](found), ""]) for name, found in by_figure.items() if found]
    plots = {}
    if by_figure["fig4"]:
        plots["taas-fig4.svg"] = _routes_plot(by_figure["fig4"])
    if by_figure["fig10"]:
        plots["taas-fig10.svg"] = _volumes_plot(by_figure["fig10"])
    return Page("\n".join(parts), plots)


def write(page: Page, folder: Path) -> None:
    """Write the page and its plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {PAGE_FILE: page.text, **page.plots}.items():
        (folder / name).write_text(text, encoding="utf-8")


def _head(rows: Sequence[Row]) -> str:
    about = machine()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    counts = {figure: sorted(_repetitions(rows, figure)) for figure in run.FIGURES}
    rounds = "; ".join(f"{name} {_range(count)}" for name, count in counts.items() if count)
    said = (
        f"{today}, {about['cores']} cores of {about['cpu']}, Linux {about['kernel']}: {len(rows)} valid runs. "
        f"Repetitions of each point: {rounds}. A run during which the emulator was late does not count. "
        f"A run of Figs. 4 to 9 has at least {_fewest_windows(rows)} windows of 1 s for each application. "
        "End to end is in Figs. 4 and 7: the difference shows what one repetition is worth."
    )
    made = (
        f"Two sites in the [emulated WAN](../reference/sky.md), {world.WIDE_RTT_MS:.0f} ms apart. A wide-area link "
        f"carries {world.ROUTE_MBPS:g} Mbit/s on average; its rate is drawn again every {world.REDRAW_S:g} s, from "
        f"{1 - world.SPREAD:g} to {1 + world.SPREAD:g} times that. Links within a site carry {world.WITHIN_SITE} times "
        f"as much. All links to one destination share a pool of {world.AGGREGATE:g} links, drawn from "
        f"{1 - world.AGGREGATE_SPREAD:g} to {1 + world.AGGREGATE_SPREAD:g} times that. **The pool stands for the "
        "congestion between the paper's sites and was chosen for the paper's threefold rate.** So the height at which "
        "the rate levels off is an assumption; results are how close the transfers come to it, how the rate varies, "
        "and how the options differ. Data goes from memory to memory. "
        f"1 GB of the paper is {run.BYTES_PER_GB / 1e6:g} MB here."
    )
    left = (
        "The paper's numbers are those in its text; its plots have none. The larger destination of Fig. 4 is in Fig. 5."
    )
    title = ["# Measured: the transfer service of the paper", "", "Output of `python -m benchmarks.taas`."]
    return "\n".join([*title, "", wrapped(said), "", wrapped(made), "", wrapped(left), ""])


def _fewest_windows(rows: Sequence[Row]) -> int:
    return min((len(windows) for row in rows if row["figure"] != "fig10" for windows in row["windows_mbps"]), default=0)


def _repetitions(rows: Sequence[Row], figure: str) -> set[int]:
    mine = [row["key"].rsplit("/", 1)[0] for row in rows if row["figure"] == figure]
    return {mine.count(key) for key in mine}


def _range(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _at(rows: Sequence[Row], option: str, x: float) -> list[Row]:
    return [row for row in rows if row["option"] == option and row["x"] == x]


def _windows(rows: Sequence[Row]) -> list[float]:
    return [rate for row in rows for windows in row["windows_mbps"] for rate in windows]


def _mbps(rows: Sequence[Row]) -> float:
    windows = _windows(rows)
    return statistics.fmean(windows) if windows else 0.0


def _variation(rows: Sequence[Row]) -> float:
    """Return the coefficient of variation of the windows: standard deviation over mean."""
    windows = _windows(rows)
    return statistics.stdev(windows) / statistics.fmean(windows) if len(windows) > 1 else 0.0


def _elapsed_s(rows: Sequence[Row]) -> float:
    return statistics.fmean(elapsed_s for row in rows for elapsed_s in row["elapsed_s"])


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    head = "| " + " | ".join(columns) + " |"
    return [head, "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in cells)]


def _section(title: str, paper: str, table: Sequence[str]) -> list[str]:
    return [f"## {title}", "", wrapped(f"Paper: {paper}"), "", *table]


def _routes(rows: Sequence[Row]) -> list[str]:
    one = _mbps(_at(rows, run.MULTI_ROUTE, 1))
    cells = []
    for routes in run.ROUTES:
        mine = _at(rows, run.MULTI_ROUTE, routes)
        if mine and one:
            rate = _mbps(mine)
            cells.append([f"{routes}", f"{rate:.2f}", f"{rate / one:.2f}", f"{_variation(mine):.0%}"])
    paper = (
        "the rate of a user's own routes grows ever less with each one and is bounded, not by the destination; the "
        "coefficient of variation falls as routes are added."
    )
    columns = ["routes, with the direct one", "rate [Mbit/s]", "times one route", "variation of 1 s rates"]
    title = "Figs. 4 and 6: number of routes"
    return [*_section(title, paper, _table(columns, cells)), "", "![rate over routes](taas-fig4.svg)"]


def _routes_plot(rows: Sequence[Row]) -> str:
    known = [routes for routes in run.ROUTES if _at(rows, run.MULTI_ROUTE, routes)]
    lines = {"measured": [_mbps(_at(rows, run.MULTI_ROUTE, routes)) for routes in known]}
    limit = (world.ROUTE_MBPS * world.AGGREGATE, "mean of the pool")
    return line_plot(Frame("Rate over routes", "routes", "Mbit/s", limit=limit), known, lines)


def _types(rows: Sequence[Row]) -> list[str]:
    smallest = next(iter(world.TYPES))
    base = _mbps(_at(rows, f"{smallest} to {smallest}", run.TYPED_NODES))
    cells = []
    for sender in world.TYPES:
        for receiver in world.TYPES:
            mine = _at(rows, f"{sender} to {receiver}", run.TYPED_NODES)
            if mine and base:
                rate = _mbps(mine)
                cells.append([sender, receiver, f"{rate:.2f}", f"{rate / base - 1:+.0%}", f"{_variation(mine):.0%}"])
    paper = (
        "with 3 extra nodes of the sender's type, larger machines at the sender or at the destination do not raise the "
        "rate: it depends on the paths between the sites."
    )
    columns = ["sender and its nodes", "destination", "rate [Mbit/s]", "to small machines", "variation of 1 s rates"]
    note = (
        f"{run.TYPED_NODES} own nodes and the direct route. As in the paper, the largest machine has "
        f"{max(world.TYPES.values())} times the network card of a small one, whose card carries {world.WITHIN_SITE} "
        "wide-area links. The types have no cores or memory of their own: all nodes share this computer's."
    )
    return [*_section("Fig. 5: types of machines", paper, _table(columns, cells)), "", wrapped(note)]


def _options(rows: Sequence[Row]) -> list[str]:
    names = (run.END_TO_END, run.MULTI_ROUTE, run.ASYMMETRIC, run.SYMMETRIC)
    own = _mbps(_at(rows, run.MULTI_ROUTE, 0))
    cells = []
    for name in names:
        mine = _at(rows, name, 0)
        if mine and own:
            rate = _mbps(mine)
            cells.append([name, f"{rate:.2f}", f"{rate / own - 1:+.0%}", f"{_variation(mine):.0%}"])
    paper = (
        "the asymmetric service is about 16% slower than a user's own routes, because of its load balancer and its "
        "distance from the sender; the symmetric one makes up for it. 5 nodes per service."
    )
    columns = ["option", "rate [Mbit/s]", "to multi-route", "variation of 1 s rates"]
    note = (
        "Our source spreads chunks over the routes by itself: there is no balancer in the path, so its cost is not "
        f"measured. Multi-route has {run.EXTRA_NODES} own nodes and the direct route."
    )
    return [*_section("Fig. 7: options between sites", paper, _table(columns, cells)), "", wrapped(note)]


def _concurrency(rows: Sequence[Row]) -> list[str]:
    cells = []
    for name in (run.ASYMMETRIC, run.SYMMETRIC, run.OWN_NODE):
        rates = {count: _mbps(_at(rows, name, count)) for count in run.APPLICATIONS if _at(rows, name, count)}
        base = _mbps(_at(rows, run.ASYMMETRIC if name == run.OWN_NODE else name, 1))
        if base:
            found = [
                f"{rates[count]:.2f} ({rates[count] / base - 1:+.0%})" if count in rates else ""
                for count in run.APPLICATIONS
            ]
            cells.append([name, *found])
    paper = (
        "with 5 applications on 5 nodes each is at most 25% slower than one alone, and the symmetric service loses "
        "more than the asymmetric one."
    )
    columns = ["service", *(f"{count} application{'s' if count > 1 else ''} [Mbit/s]" for count in run.APPLICATIONS)]
    note = (
        "In brackets: to one application with all nodes. Each application has its own links and its own pool, and the "
        "network cards of the nodes are not full. So only the work of the nodes is shared, and this is the favourable "
        "case. If all applications shared one pool, each would get its part of it. A node of one's own is one route."
    )
    return [*_section("Fig. 8: concurrent applications", paper, _table(columns, cells)), "", wrapped(note)]


def _load(rows: Sequence[Row]) -> list[str]:
    idle = _mbps(_at(rows, run.MULTI_ROUTE, 1.0))
    cells = []
    for share, name in LOADS.items():
        mine = _at(rows, run.MULTI_ROUTE, share)
        if mine and idle:
            cells.append([name, f"{share:.0%}", f"{_mbps(mine):.2f}", f"{_mbps(mine) / idle - 1:+.0%}"])
    paper = "computation on the 4 extra nodes makes a user's own transfer 20 to 50% slower."
    note = (
        "The load is emulated: the gateways of the extra nodes are stopped for the rest of each turn, as a scheduler "
        "does; the kernel's TCP runs on. The direct route is not used."
    )
    columns = ["load of the nodes", "time left to the gateway", "rate [Mbit/s]", "to idle nodes"]
    return [*_section("Fig. 9: load of the user's nodes", paper, _table(columns, cells)), "", wrapped(note)]


def _times(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    names = (run.END_TO_END, run.MULTI_ROUTE, run.ASYMMETRIC, run.SYMMETRIC)
    return {
        name: {volume: _elapsed_s(_at(rows, name, volume)) for volume in run.VOLUMES_GB if _at(rows, name, volume)}
        for name in names
    }


def _volumes(rows: Sequence[Row]) -> list[str]:
    times = _times(rows)
    cells = [
        [name, *(f"{mine[volume]:.1f}" if volume in mine else "" for volume in run.VOLUMES_GB)]
        for name, mine in times.items()
    ]
    paper = (
        "the service is up to 20% slower than a user's own routes and twice as fast as end to end; section V uses a = "
        "3 and b = 2.5."
    )
    columns = ["option", *(f"{volume} GB [s]" for volume in run.VOLUMES_GB)]
    lines = _section("Fig. 10: volumes", paper, _table(columns, cells))
    lines += ["", "![time over volume](taas-fig10.svg)"]
    if all(len(mine) == len(run.VOLUMES_GB) for mine in times.values()):
        lines += ["", *_prices({name: sum(mine.values()) for name, mine in times.items()})]
    return lines


def _volumes_plot(rows: Sequence[Row]) -> str:
    lines = {name: [mine.get(volume, "") for volume in run.VOLUMES_GB] for name, mine in _times(rows).items()}
    return line_plot(Frame("Time over volume", "volume of the paper [GB]", "seconds"), run.VOLUMES_GB, lines)


def _prices(times: Mapping[str, float]) -> list[str]:
    """Return costs, margins and energy from the times of all volumes together."""
    e2e, umr = exact(times[run.END_TO_END]), exact(times[run.MULTI_ROUTE])
    cells = []
    for name, nodes in ((run.ASYMMETRIC, 1), (run.SYMMETRIC, 2)):
        ratios = TimeRatios(e2e / umr, e2e / exact(times[name]))
        cells.append([name, *_price_cells(ratios, nodes)])
    cells.append(["the paper's a = 3, b = 2.5", *_price_cells(PAPER_RATIOS, 1)])
    columns = [
        "times of",
        "a",
        "b",
        "c",
        "least N",
        f"margin, N = {run.EXTRA_NODES} [C]",
        "energy of users over the service",
    ]
    paper = (
        "costs of machines end to end are the lower bound, those of multi-route the upper one; users' own machines "
        "take twice the energy of the service."
    )
    ratios = TimeRatios(e2e / umr, e2e / exact(times[run.ASYMMETRIC]))
    hours = umr / 3600
    relative = umr_usd(hours, run.EXTRA_NODES, MACHINE_USD_PER_HOUR) / e2e_usd(hours, ratios, MACHINE_USD_PER_HOUR)
    note = (
        f"From the times of all volumes together, by `tradewind.market`; C is the price of a machine for an hour. The "
        "energy is that of as many service nodes at each site as applications. Machines cost "
        f"{float(relative):.2f} times as much by multi-route as end to end (7/6 = 1.17 with the paper's ratios). "
        f"Outbound traffic costs the same by each option: "
        f"{LARGEST_GB} GB cost ${float(OUTBOUND_USD_PER_GB * LARGEST_GB):.2f} at "
        f"${float(OUTBOUND_USD_PER_GB):.2f} per GB. Prices per GB are in [the calculated page](market.md): scaled "
        "rates give none."
    )
    return [*_section("Figs. 11 to 13, and energy", paper, _table(columns, cells)), "", wrapped(note)]


def _price_cells(ratios: TimeRatios, nodes_per_application: int) -> list[str]:
    bounds = margin(ratios, run.EXTRA_NODES, 1)
    energy = energy_ratio(1, run.EXTRA_NODES, nodes_per_application, Fraction(ratios.service_per_umr))
    shown = f"{float(bounds.lower_usd):.2f} to {float(bounds.upper_usd):.2f}{' (empty)' if bounds.is_empty else ''}"
    return [
        f"{float(ratios.e2e_per_umr):.2f}",
        f"{float(ratios.e2e_per_service):.2f}",
        f"{float(ratios.service_per_umr):.2f}",
        f"{least_extra_nodes(ratios)}",
        shown,
        f"{float(energy):.2f}",
    ]
