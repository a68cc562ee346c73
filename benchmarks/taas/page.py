"""The page of the benchmark: tables and plots beside the paper's words."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.acceleration.page import Page, wrapped
from benchmarks.taas import drawings, run, site_page, world
from benchmarks.taas.prices import Times, price_plots, price_section
from benchmarks.taas.rows import Figure, Row, elapsed_s, fewest_windows, rate_mbps, rounds_of, rows_at, variation
from benchmarks.tables import machine

PAGE_FILE = "taas.md"
LOADS = dict(zip(run.SHARES, ("none", "40%", "100%", "100%, with priority"), strict=True))
VARIATION = "variation of 1 s rates"


def page_of(rows: Sequence[Row]) -> Page:
    """Return the page of the figures that have rows."""
    by_figure = {name: [row for row in rows if row["figure"] == name] for name in run.FIGURES}
    makers = {
        "fig4": (_routes, drawings.routes),
        "fig5": (_types, drawings.types),
        "fig7": (_options, drawings.options),
        "fig8": (_concurrency, drawings.concurrency),
        "site": (site_page.section, site_page.plot),
        "fig9": (_load, drawings.load),
        "fig10": (_volumes, drawings.volumes),
    }
    parts, plots = [_head(rows)], dict[str, str]()
    for name, found in by_figure.items():
        if found:
            section, plots_of = makers[name]
            parts.append("\n".join([*section(found), ""]))
            plots |= plots_of(found)
    if times := _times(by_figure["fig10"]):
        parts.append("\n".join([*price_section(times), ""]))
        plots |= price_plots(times)
    return Page("\n".join(parts), plots)


def write(page: Page, folder: Path) -> None:
    """Write the page and its plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {PAGE_FILE: page.text, **page.plots}.items():
        (folder / name).write_text(text, encoding="utf-8")


def _head(rows: Sequence[Row]) -> str:
    about = machine()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    counts = {figure: rounds_of([row for row in rows if row["figure"] == figure]) for figure in run.FIGURES}
    rounds = "; ".join(f"{name} {_range(*count)}" for name, count in counts.items() if count[1])
    loads = [float(row["load"]) for row in rows if "load" in row]
    said = (
        f"{today}, {about['cores']} cores of {about['cpu']}, Linux {about['kernel']}: {len(rows)} valid runs. "
        f"Rounds: {rounds}. A run during which the emulator was late does not count. "
        f"A run of Figs. 4 to 9 has at least {fewest_windows([row for row in rows if row['figure'] != 'fig10'])} "
        "windows of 1 s for each application. Figures are the mean of the rounds ± their standard deviation; bands "
        "and marks of the plots show the same."
    )
    if loads:
        said += f" Other work kept the host busy: its load was {min(loads):.0f} to {max(loads):.0f}."
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
    left = "The paper's numbers are those in its text; its plots have none."
    title = ["# Measured: the transfer service of the paper", "", "Output of `python -m benchmarks.taas`."]
    return "\n".join([*title, "", wrapped(said), "", wrapped(made), "", wrapped(left), ""])


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    head = "| " + " | ".join(columns) + " |"
    return [head, "|---|" + "---:|" * (len(columns) - 1), *("| " + " | ".join(row) + " |" for row in cells)]


def _section(title: str, paper: str, table: Sequence[str], note: str, *plots: str) -> list[str]:
    lines = [f"## {title}", "", wrapped(f"Paper: {paper}"), "", *table]
    if note:
        lines += ["", wrapped(note)]
    for plot in plots:
        lines += ["", plot]
    return lines


def _routes(rows: Sequence[Row]) -> list[str]:
    one = rate_mbps(rows_at(rows, run.MULTI_ROUTE, 1))
    cells = []
    for routes in run.ROUTES:
        mine, larger = rows_at(rows, run.MULTI_ROUTE, routes), rows_at(rows, run.SMALL_TO_LARGE, routes)
        rate, other = rate_mbps(mine), rate_mbps(larger)
        if rate and one:
            varies, other_varies = variation(mine), variation(larger)
            cell = [f"{routes}", rate.shown(2), f"{rate.mean / one.mean:.2f}", other.shown(2) if other else ""]
            cells.append([*cell, *(each.percent() if each else "" for each in (varies, other_varies))])
    paper = (
        "the rate of a user's own routes grows ever less with each one, to about three times that of one, and is "
        "bounded, but not by the destination: a larger one gives a similar rate. The coefficient of variation falls as "
        "routes are added."
    )
    columns = ["routes, with the direct one", "rate, small destination [Mbit/s]", "times one route"]
    columns += ["rate, xlarge destination [Mbit/s]", f"{VARIATION}, small", f"{VARIATION}, xlarge"]
    return _section(
        "Figs. 4 and 6: number of routes",
        paper,
        _table(columns, cells),
        "",
        "![rate over routes](taas-fig4.svg)",
        "![variation over routes](taas-fig6.svg)",
    )


def _types(rows: Sequence[Row]) -> list[str]:
    smallest = next(iter(world.TYPES))
    base = rate_mbps(rows_at(rows, f"{smallest} to {smallest}", run.TYPED_NODES))
    cells = []
    for sender in world.TYPES:
        for receiver in world.TYPES:
            mine = rows_at(rows, f"{sender} to {receiver}", run.TYPED_NODES)
            rate, varies = rate_mbps(mine), variation(mine)
            if rate and base and varies:
                cells.append([sender, receiver, rate.shown(2), rate.relative(base), varies.percent()])
    paper = (
        "with 3 extra nodes of the sender's type, larger machines at the sender or at the destination do not raise the "
        "rate: it depends on the paths between the sites."
    )
    columns = ["sender and its nodes", "destination", "rate [Mbit/s]", "to small machines", VARIATION]
    note = (
        f"{run.TYPED_NODES} own nodes and the direct route. As in the paper, the largest machine has "
        f"{max(world.TYPES.values())} times the network card of a small one, whose card carries {world.WITHIN_SITE} "
        "wide-area links. The types have no cores or memory of their own: all nodes share this computer's."
    )
    title = "Fig. 5: types of machines"
    return _section(title, paper, _table(columns, cells), note, "![rate by types of machines](taas-fig5.svg)")


def _options(rows: Sequence[Row]) -> list[str]:
    own = rate_mbps(rows_at(rows, run.MULTI_ROUTE, 0))
    stated = {run.END_TO_END: "-67%", run.MULTI_ROUTE: "+0%", run.ASYMMETRIC: "-16%", run.SYMMETRIC: "about +0%"}
    cells = []
    for name in run.OPTIONS:
        mine = rows_at(rows, name, 0)
        rate, varies = rate_mbps(mine), variation(mine)
        if rate and own and varies:
            cells.append([name, rate.shown(2), rate.relative(own), stated[name], varies.percent()])
    paper = (
        "the asymmetric service is about 16% slower than a user's own routes, because of its load balancer and its "
        "distance from the sender; the symmetric one makes up for it. 5 nodes per service. A user's own routes are "
        "three times as fast as end to end."
    )
    columns = ["option", "rate [Mbit/s]", "to multi-route", "paper", VARIATION]
    note = (
        "Our source spreads chunks over the routes by itself: there is no balancer in the path, so that cause of the "
        "paper's -16% is missing here. [Below](#fig-8-nodes-of-a-site) the cost of one is measured."
        f" Multi-route has {run.EXTRA_NODES} own nodes and the direct route."
    )
    title = "Fig. 7: options between sites"
    return _section(title, paper, _table(columns, cells), note, "![rate by option](taas-fig7.svg)")


def _concurrency(rows: Sequence[Row]) -> list[str]:
    cells = []
    for name in (run.ASYMMETRIC, run.SYMMETRIC, run.OWN_NODE):
        base = rate_mbps(rows_at(rows, run.ASYMMETRIC if name == run.OWN_NODE else name, 1))
        if base:
            rates = [rate_mbps(rows_at(rows, name, count)) for count in run.APPLICATIONS]
            cells.append([name, *(f"{rate.shown(2)} ({rate.relative(base)})" if rate else "" for rate in rates)])
    paper = (
        "with 5 applications on 5 nodes each is at most 25% slower than one alone, and the symmetric service loses "
        "more than the asymmetric one."
    )
    columns = ["rate of an application [Mbit/s]", *(f"{count}" for count in run.APPLICATIONS)]
    note = (
        "Columns are numbers of applications; in brackets: to one application with all nodes. Each application has its "
        "own links and its own pool, and the network cards of the nodes are not full. So only the work of the nodes is "
        "shared, and this is the favourable case. If all applications shared one pool, each would get its part of it. "
        "A node of one's own is one route."
    )
    title = "Fig. 8: concurrent applications"
    return _section(title, paper, _table(columns, cells), note, "![rate over applications](taas-fig8.svg)")


def _load(rows: Sequence[Row]) -> list[str]:
    idle = rate_mbps(rows_at(rows, run.MULTI_ROUTE, run.UNLOADED))
    points = [(run.MULTI_ROUTE, name, share) for share, name in LOADS.items()]
    cells = []
    for option, name, share in [*points, (run.ASYMMETRIC, "any", run.UNLOADED)]:
        rate = rate_mbps(rows_at(rows, option, share))
        if rate and idle:
            cells.append([option, name, f"{share:.0%}", rate.shown(2), rate.relative(idle)])
    paper = (
        "computation on the 4 extra nodes makes a user's own transfer 20 to 50% slower; the figure compares it with "
        "the service."
    )
    note = (
        "The load is emulated: the gateways of the extra nodes are stopped for the rest of each turn, as a scheduler "
        "does; the kernel's TCP runs on. The direct route is not used. The service has 5 nodes of its own, which a "
        "user's computation does not load."
    )
    columns = ["option", "load of the user's nodes", "time left to the gateway", "rate [Mbit/s]", "to idle nodes"]
    title = "Fig. 9: load of the user's nodes"
    return _section(title, paper, _table(columns, cells), note, "![rate by load](taas-fig9.svg)")


def _times(rows: Sequence[Row]) -> Times:
    """Return the mean time of each option and volume; nothing unless all were measured."""
    times = {
        name: {volume: elapsed_s(rows_at(rows, name, volume)) for volume in run.VOLUMES_GB} for name in run.OPTIONS
    }
    found = {name: {volume: one.mean for volume, one in mine.items() if one} for name, mine in times.items()}
    return found if all(len(mine) == len(run.VOLUMES_GB) for mine in found.values()) else {}


def _volumes(rows: Sequence[Row]) -> list[str]:
    cells = []
    for name in run.OPTIONS:
        times = [elapsed_s(rows_at(rows, name, volume)) for volume in run.VOLUMES_GB]
        cells.append([name, *(time.shown(1) if time else "" for time in times), _total(rows, name)])
    paper = (
        "the service is up to 20% slower than a user's own routes and twice as fast as end to end; section V uses a = "
        "3 and b = 2.5."
    )
    columns = ["option", *(f"{volume} GB [s]" for volume in run.VOLUMES_GB), "all volumes, to multi-route"]
    return _section("Fig. 10: volumes", paper, _table(columns, cells), "", "![time over volume](taas-fig10.svg)")


def _total(rows: Sequence[Row], option: str) -> str:
    times: Mapping[str, list[Figure | None]] = {
        name: [elapsed_s(rows_at(rows, name, volume)) for volume in run.VOLUMES_GB]
        for name in (option, run.MULTI_ROUTE)
    }
    mine, own = (sum(time.mean for time in times[name] if time) for name in (option, run.MULTI_ROUTE))
    return f"{mine / own:.2f}" if all(times[option]) and all(times[run.MULTI_ROUTE]) else ""
