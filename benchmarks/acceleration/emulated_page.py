"""Sections of the page for Figs. 3, 4 and 15 and for short flows, from the rows measured in the emulated WAN."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.acceleration import fct, rates
from benchmarks.acceleration.chains import version
from benchmarks.acceleration.page import Page, wrapped
from benchmarks.acceleration.pools_page import pools_section
from benchmarks.plots import Axis, bars, curves
from benchmarks.tables import machine
from testbed.servers.install import InstallError
from tradewind.placement.problem import EDGE_WINDOW_BYTES

Row = Mapping[str, Any]
MBITS_PER_BYTE_MS = 8e-3
"""From bytes per millisecond to Mbit/s."""
HEADROOM, BARS_HEADROOM = 1.05, 1.1
SMALL_WINDOW, SMALL_ERROR = 0.7, 0.04
"""A first hop with at most this share of the full window is counted if that explains an error larger than this."""


def sections(rows: Sequence[Row], *, quick: bool) -> Page:
    """Return the sections of the figures that have rows."""
    if not rows:
        return Page("")
    parts, plots = [_head(rows, quick)], {}
    by_figure = {name: [row for row in rows if row["figure"] == name] for name in ("fig3", "fig4", "fig15", "pools")}
    chosen = ("fig3", _figure_3), ("fig4", _figure_4), ("fig15", _figure_15), ("pools", pools_section)
    for name, section in chosen:
        if by_figure[name]:
            parts.append("\n".join([*section(by_figure[name]), ""]))
    for name, drawing in (("fig3", _rate_bars), ("fig4", _scatter), ("fig15", _acceleration_bars)):
        if by_figure[name]:
            plots[f"acceleration-{name}.svg"] = drawing(by_figure[name])
    return Page("\n".join(parts), plots)


def _head(rows: Sequence[Row], quick: bool) -> str:
    about = machine()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    warning = "**Quick mode: too little of everything to quote.** " if quick else ""
    versions = []
    for program in ("haproxy", "nginx"):
        try:
            versions.append(version(program))
        except InstallError:
            continue
    text = (
        f"{warning}Measured on {today} in the [emulated WAN](../reference/sky.md), {about['cores']} cores of "
        f"{about['cpu']}, Linux {about['kernel']}, {', '.join(versions)}: {len(rows)} valid measurements. Round trips "
        f"are true; rates, windows and sizes are scaled by {rates.SCALE:g} (Figs. 3, 4) and {fct.SCALE:g} (Fig. 15). "
        "Windows are those of the paper: 2.875 MB, and 500 MB between two proxies, before the scale. Links carry "
        "2 Gbit/s before the scale and lose nothing. Proxies connect over plain TCP. A measurement during which the "
        "emulator was late is repeated and does not count."
    )
    return "\n".join(["## Measured in the emulated WAN", "", wrapped(text), ""])


def _ways(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["way"], row["program"]) for row in rows))


def _way_name(way: tuple[str, str]) -> str:
    return f"{way[0]}, {way[1]}" if way[1] else way[0]


def _figure_3(rows: Sequence[Row]) -> list[str]:
    said = (
        "Paper: a forwarding proxy is hardly better than the direct connection, or worse; split proxies are clearly "
        "better than both. Its plot has no numbers."
    )
    note = (
        "Regions are those of Table 1, in the clouds that it names, with the round trips of 2022 in `../shared/grid`. "
        f"Row a has {rates.TABLE_1[0].note}. The forwarding proxy is a NAT hop."
    )
    ways = _ways(rows)
    lines = ["### Fig. 3: forwarding and splitting", "", wrapped(said), "", wrapped(note), ""]
    lines += ["Table: rate [Mbit/s], measured (predicted).", ""]
    lines += [f"| tuple | {' | '.join(map(_way_name, ways))} |", "|---|" + "---:|" * len(ways)]
    for name in dict.fromkeys(row["tuple"] for row in rows):
        mine = [row for row in rows if row["tuple"] == name]
        route = next((" → ".join((row["regions"][0], row["regions"][-1])) for row in mine), "")
        cells = [_rate_cell([row for row in mine if (row["way"], row["program"]) == way]) for way in ways]
        lines.append(f"| {name}: {route} | {' | '.join(cells)} |")
    return [*lines, "", "![rate by way and tuple](acceleration-fig3.svg)"]


def _rate_cell(rows: Sequence[Row]) -> str:
    return f"{_median_mbps(rows):.1f} ({rows[0]['predicted_mbps']:.1f})" if rows else ""


def _median_mbps(rows: Sequence[Row]) -> float:
    return statistics.median(row["measured_mbps"] for row in rows) if rows else 0.0


def _rate_bars(rows: Sequence[Row]) -> str:
    """Return a plot of the measured rates."""
    groups = []
    for way in _ways(rows):
        mine = [row for row in rows if (row["way"], row["program"]) == way]
        tuples = dict.fromkeys(row["tuple"] for row in rows)
        groups.append({name: _median_mbps([row for row in mine if row["tuple"] == name]) for name in tuples})
    highest = max(rate for group in groups for rate in group.values()) * BARS_HEADROOM
    names = [_in_lines(_way_name(way)) for way in _ways(rows)]
    return bars("Fig. 3: forwarding and splitting", Axis("rate [Mbit/s]", 0, highest), names, groups)


def _in_lines(name: str) -> str:
    return name.replace(", ", "\n")


def _error(row: Row) -> float:
    """Return the error of the prediction, relative to it."""
    return float(abs(row["measured_mbps"] / row["predicted_mbps"] - 1))


def _observed_mbps(row: Row) -> float | None:
    """Return the rate of the slowest hop by the window and the round trip that the kernel reported."""
    slowest = [hop["window_bytes"] / hop["rtt_ms"] * MBITS_PER_BYTE_MS for hop in row["hops"]]
    return min(slowest) if slowest else None


def _observed_error(row: Row) -> float:
    """Return the error of the rate by the kernel's figures, relative to it."""
    observed = _observed_mbps(row)
    return math.inf if observed is None else float(abs(row["measured_mbps"] / observed - 1))


def _points(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield one point for each tuple and way: the mean of its rounds, as in the paper."""
    for key in dict.fromkeys((row["tuple"], row["way"]) for row in rows):
        mine = [row for row in rows if (row["tuple"], row["way"]) == key]
        observed = [rate for row in mine if (rate := _observed_mbps(row)) is not None]
        yield {
            **mine[0],
            "measured_mbps": statistics.fmean(row["measured_mbps"] for row in mine),
            "observed_mbps": statistics.fmean(observed) if observed else None,
        }


def _figure_4(rows: Sequence[Row]) -> list[str]:
    points = list(_points(rows))
    tuples = {point["tuple"] for point in points}
    direct = {point["tuple"]: point for point in points if point["way"] == "direct"}
    said = (
        f"Paper: predictions of over 75 tuples are close to what was measured; it states no error. Here: {len(tuples)} "
        "tuples of a source, a destination and proxies, drawn at random from the 18 regions, all different, whose "
        f"proxies gain at least {rates.GAIN_MIN:g}× by the model. A flow is measured for {rates.Timing().seconds:g} s "
        f"after a warm-up of {rates.Timing().warmup_s:g} s."
    )
    lines = ["### Fig. 4: predicted and measured rate", "", wrapped(said), ""]
    lines += ["Table: error of the predicted rate, relative to it [%].", ""]
    lines += [
        "| path | points | median | worst | mean of measured / predicted | median with the kernel's own figures |"
    ]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    groups = {name: [p for p in points if p["way"] == name] for name in dict.fromkeys(p["way"] for p in points)}
    for name, group in [*groups.items(), ("all", points)]:
        lines.append(f"| {name} | {_errors(group)} |")
    lines += ["", "Table: error of the predicted acceleration over the direct connection [%].", ""]
    lines += ["| path | points | median | worst |", "|---|---:|---:|---:|"]
    for name, group in groups.items():
        errors = [
            abs(
                (point["measured_mbps"] / direct[point["tuple"]]["measured_mbps"])
                / (point["predicted_mbps"] / direct[point["tuple"]]["predicted_mbps"])
                - 1
            )
            for point in group
            if name != "direct" and point["tuple"] in direct
        ]
        if errors:
            lines.append(
                f"| {name} | {len(errors)} | {100 * statistics.median(errors):.1f} | {100 * max(errors):.1f} |"
            )
    full_bytes = EDGE_WINDOW_BYTES * rates.SCALE
    small = sum(
        1
        for row in rows
        if row["program"]
        and row["hops"]
        and row["hops"][0]["window_bytes"] <= SMALL_WINDOW * full_bytes
        and _error(row) > SMALL_ERROR
        and _observed_error(row) < SMALL_ERROR
    )
    why = (
        "The kernel's own figures are the window that the receiver advertises and the smoothed round trip, as `ss` "
        "reports them at the sender of each hop in the middle of a measurement. In "
        f"{small} of {len(rows)} measurements the window of a first hop was at most {SMALL_WINDOW:.0%} of the one that "
        "its buffer allows, and the rate was that of the smaller window."
    )
    return [*lines, "", wrapped(why), "", "![measured over predicted rate](acceleration-fig4.svg)"]


def _errors(points: Sequence[Row]) -> str:
    errors = [_error(point) for point in points]
    ratio = statistics.fmean(point["measured_mbps"] / point["predicted_mbps"] for point in points)
    observed = [abs(point["measured_mbps"] / point["observed_mbps"] - 1) for point in points if point["observed_mbps"]]
    kernel = f"{100 * statistics.median(observed):.1f}" if observed else ""
    return f"{len(errors)} | {100 * statistics.median(errors):.1f} | {100 * max(errors):.1f} | {ratio:.3f} | {kernel}"


def _scatter(rows: Sequence[Row]) -> str:
    points = list(_points(rows))
    highest = max(max(point["measured_mbps"], point["predicted_mbps"]) for point in points) * HEADROOM
    line = "measured = predicted"
    names = list(dict.fromkeys(point["way"] for point in points))
    marks = {
        name: [(point["predicted_mbps"], point["measured_mbps"]) for point in points if point["way"] == name]
        for name in names
    }
    series = {line: [(0.0, 0.0), (highest, highest)], **{name: marks[name][:1] for name in names}}
    axes = Axis("predicted [Mbit/s]", 0, highest), Axis("measured [Mbit/s]", 0, highest)
    return curves("Fig. 4: rate of one flow", *axes, series, {line: [], **marks})


def _figure_15(rows: Sequence[Row]) -> list[str]:
    said = (
        "Paper: the proxy-greedy algorithms do better than the flow-greedy ones, and predictions are close to what was "
        "measured. Its plot has no numbers. Servers in Finland, Sao Paulo and Tokyo, and London in the second "
        "experiment, send to each other at the same time, with 50 ¢ per flow."
    )
    size = rows[0]["size_bytes"] / 1e6
    note = (
        f"A flow has {size:g} MB, which is 2 GB scaled by {fct.SCALE:g} and {fct.SHORTER:g} of that, so that a round "
        "takes a minute; slow start weighs more than over 2 GB. A completion time begins with the connection and ends "
        "when the receiver's answer to the last byte arrives. Plans are made for the sizes and rates of the paper. An "
        "instance that receives from proxies and from servers is two machines, because windows are set for a machine."
    )
    lines = ["### Fig. 15: two full meshes", "", wrapped(said), "", wrapped(note), ""]
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        mine = [row for row in rows if row["experiment"] == experiment]
        direct = [_total_s(row) for row in mine if row["way"] == "direct"]
        lines += [f"Table: total completion time, {experiment}.", ""]
        lines += ["| placement | cost [USD] | flows with 0 / 1 / 2 proxies | measured [s] | predicted [s] | with slow "]
        lines[-1] += "start [s] | acceleration, measured (predicted) |"
        lines += ["|---|---:|---:|---:|---:|---:|---:|"]
        for name in dict.fromkeys(row["way"] for row in mine):
            lines.append(_fct_row(name, [row for row in mine if row["way"] == name], direct))
        lines.append("")
    return [*lines, "![acceleration by placement](acceleration-fig15.svg)"]


def _acceleration_bars(rows: Sequence[Row]) -> str:
    """Return a plot of the acceleration of each placement, measured and predicted."""
    experiments = list(dict.fromkeys(row["experiment"] for row in rows))
    names = [name for name in dict.fromkeys(row["way"] for row in rows) if name != "direct"]
    groups: list[dict[str, float]] = [{} for _ in names]
    for experiment in experiments:
        mine = [row for row in rows if row["experiment"] == experiment]
        direct = [_total_s(row) for row in mine if row["way"] == "direct"]
        for name, group in zip(names, groups, strict=True):
            placed = [row for row in mine if row["way"] == name]
            servers = experiment.partition(",")[0]
            group[f"{servers}, measured"] = _acceleration(placed, direct)
            group[f"{servers}, predicted"] = _predicted_acceleration(placed[0]) if placed else 0.0
    highest = max(value for group in groups for value in group.values()) * BARS_HEADROOM
    axis = Axis("acceleration", 0, highest)
    return bars("Fig. 15: two full meshes", axis, list(map(_in_lines, names)), groups)


def _acceleration(rows: Sequence[Row], direct_s: Sequence[float]) -> float:
    """Return how many times as fast a placement is as direct flows; 0 if that was not measured."""
    return statistics.fmean(direct_s) / statistics.fmean(map(_total_s, rows)) if rows and direct_s else 0.0


def _predicted_acceleration(row: Row) -> float:
    return float(row["direct_predicted_s"] / sum(row["predicted_s"]))


def _total_s(row: Row) -> float:
    return float(sum(row["measured_s"]))


def _fct_row(name: str, rows: Sequence[Row], direct_s: Sequence[float]) -> str:
    row, totals = rows[0], [_total_s(row) for row in rows]
    spread = f" ± {statistics.stdev(totals):.1f}" if len(totals) > 1 else ""
    counts = " / ".join(str(row["proxies_per_flow"].count(number)) for number in range(3))
    predicted, slow = sum(row["predicted_s"]), sum(row["predicted_slow_start_s"])
    acceleration = f"{_acceleration(rows, direct_s):.2f}" if direct_s else ""
    return (
        f"| {name} | {row['cost_usd']:.2f} | {counts} | {statistics.fmean(totals):.1f}{spread} ({len(totals)}) | "
        f"{predicted:.1f} | {slow:.1f} | {acceleration} ({_predicted_acceleration(row):.2f}) |"
    )
