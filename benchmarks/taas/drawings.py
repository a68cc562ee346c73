"""The plots of the measured figures by file name, with the spread over the rounds as bands and marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.plots import Axis, Frame, LinePlot, bars, line_plots
from benchmarks.taas import run, world
from benchmarks.taas.rows import Figure, Row, elapsed_s, rate_mbps, rows_at, variation

RATE = "Mbit/s"
LOADS = ("idle", "40%", "100%", "100%, priority")
HEADROOM = 1.2
"""Ratio of a bar plot's upper limit to the highest bar."""


def routes(rows: Sequence[Row]) -> dict[str, str]:
    """Draw rate and variation over the number of routes."""
    limit = (world.ROUTE_MBPS * world.AGGREGATE, "mean of the pool")
    names = {"small destination": run.MULTI_ROUTE, "xlarge destination": run.SMALL_TO_LARGE}
    rate = Frame("Fig. 4: rate over routes", "routes, with the direct one", RATE, limit=limit)
    varies = Frame("Fig. 6: coefficient of variation over routes", "routes, with the direct one", "percent")
    return {
        "taas-fig4.svg": _lines(rate, run.ROUTES, names, rows, rate_mbps),
        "taas-fig6.svg": _lines(varies, run.ROUTES, names, rows, variation, times=100.0),
    }


def types(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the rate by types of machines."""
    names = [f"{sender} to {receiver}" for sender in world.TYPES for receiver in world.TYPES]
    found = {name: rate_mbps(rows_at(rows, name, run.TYPED_NODES)) for name in names}
    return {"taas-fig5.svg": _bars("Fig. 5: rate by types of machines", found)}


def options(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the rate by option."""
    found = {name: rate_mbps(rows_at(rows, name, 0)) for name in run.OPTIONS}
    return {"taas-fig7.svg": _bars("Fig. 7: rate by option", found)}


def concurrency(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the rate of an application over the number of applications."""
    names = {name: name for name in (run.ASYMMETRIC, run.SYMMETRIC, run.OWN_NODE)}
    frame = Frame("Fig. 8: rate of an application", "applications", RATE)
    return {"taas-fig8.svg": _lines(frame, run.APPLICATIONS, names, rows, rate_mbps)}


def load(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the rate by load of the user's nodes, and that of the service."""
    points = [(name, run.MULTI_ROUTE, share) for name, share in zip(LOADS, run.SHARES, strict=True)]
    points.append(("service", run.ASYMMETRIC, run.UNLOADED))
    found = {name: rate_mbps(rows_at(rows, option, share)) for name, option, share in points}
    return {"taas-fig9.svg": _bars("Fig. 9: rate by load of the extra nodes", found)}


def volumes(rows: Sequence[Row]) -> dict[str, str]:
    """Draw the time over the volume."""
    names = {name: name for name in run.OPTIONS}
    frame = Frame("Fig. 10: time over volume", "volume of the paper [GB]", "seconds")
    return {"taas-fig10.svg": _lines(frame, run.VOLUMES_GB, names, rows, elapsed_s)}


def _lines(
    frame: Frame,
    xs: Sequence[int],
    names: Mapping[str, str],
    rows: Sequence[Row],
    of: Callable[[Sequence[Row]], Figure | None],
    times: float = 1.0,
) -> str:
    """Draw a line for each option that has rows, by its name in the plot."""
    found = {name: [of(rows_at(rows, option, x)) for x in xs] for name, option in names.items()}
    found = {name: line for name, line in found.items() if any(line)}
    lines = {name: [one.mean * times if one else "" for one in line] for name, line in found.items()}
    spreads = {name: [(one.spread or 0.0) * times if one else 0.0 for one in line] for name, line in found.items()}
    return line_plots([LinePlot(frame, xs, lines, spreads)])


def _bars(title: str, found: Mapping[str, Figure | None]) -> str:
    known = {name: one for name, one in found.items() if one}
    highest = max(one.mean + (one.spread or 0.0) for one in known.values())
    heights = [{"measured": one.mean} for one in known.values()]
    spreads = [{"measured": one.spread or 0.0} for one in known.values()]
    return bars(title, Axis(RATE, 0, highest * HEADROOM), list(known), heights, spreads)
