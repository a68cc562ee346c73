"""Figs. 11 to 13 and the energy, calculated by `tradewind.market` from the measured times of Fig. 10."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from benchmarks.acceleration.page import wrapped
from benchmarks.plots import Frame, LinePlot, line_plots
from benchmarks.taas import run
from tradewind.market.demand import MarketScene
from tradewind.market.energy import energy_ratio
from tradewind.market.margins import END_NODES, PAPER_RATIOS, Margin, TimeRatios, least_extra_nodes, margin
from tradewind.market.money import exact

MACHINE_USD_PER_HOUR, OUTBOUND_USD_PER_GB = exact("0.10"), exact("0.09")
"""As in `tradewind market margins`."""
UMR_GB_PER_HOUR = MarketScene().umr_gb_per_hour
SERVICES = {run.ASYMMETRIC: 1, run.SYMMETRIC: 2}
"""Nodes of each service for an application, as in the paper's energy."""
SHARES = [Fraction(step, 4) for step in range(5)]

Times = Mapping[str, Mapping[int, float]]
"""Seconds by option and volume."""


def price_section(times: Times) -> list[str]:
    """Return costs, margins, prices and energy as a section of the page."""
    paper = (
        "costs of machines end to end are the lower bound, those of multi-route the upper one, and outbound traffic "
        "costs more than both; the service's price lies between its bounds; users' own machines take twice the energy "
        "of the service."
    )
    cells = [[name, *_ratio_cells(_ratios(times, name), nodes)] for name, nodes in SERVICES.items()]
    cells.append(["the paper's a = 3, b = 2.5", *_ratio_cells(PAPER_RATIOS, 1)])
    head = (
        f"| times of | a | b | c | least N | margin, N = {run.EXTRA_NODES} [C] | price per GB | with outbound traffic |"
    )
    head += " energy of users over the service |"
    umr = [_machines_usd(times, run.MULTI_ROUTE, volume) for volume in run.VOLUMES_GB]
    e2e = [_machines_usd(times, run.END_TO_END, volume) for volume in run.VOLUMES_GB]
    note = (
        "C is the price of a machine for an hour, assumed as $"
        f"{float(MACHINE_USD_PER_HOUR):.2f}; outbound traffic costs ${float(OUTBOUND_USD_PER_GB):.2f} per GB. Measured "
        f"times are scaled: multi-route is taken to carry {float(UMR_GB_PER_HOUR):g} GB/h, as in "
        "[the calculated page](market.md). So ratios are results and dollars are not. The energy is that of as many "
        f"service nodes at each site as applications. Machines cost {float(sum(umr) / sum(e2e)):.2f} times as much by "
        "multi-route as end to end (7/6 = 1.17 with the paper's ratios). Fig. 13 is the lower plot of the second image."
    )
    return [
        "## Figs. 11 to 13, and energy",
        "",
        wrapped(f"Paper: {paper}"),
        "",
        "| Fig. 11: costs | machines, end to end | machines, multi-route | outbound traffic, each option |",
        "|---|---:|---:|---:|",
        *(
            f"| {volume} GB | ${float(lower):.4f} | ${float(upper):.4f} | ${float(OUTBOUND_USD_PER_GB * volume):.2f} |"
            for volume, lower, upper in zip(run.VOLUMES_GB, e2e, umr, strict=True)
        ),
        "",
        head,
        "|---|" + "---:|" * 8,
        *("| " + " | ".join(cell) + " |" for cell in cells),
        "",
        wrapped(note),
        "",
        "![costs over volume](taas-fig11.svg)",
        "",
        "![price per GB, without and with outbound traffic](taas-fig12.svg)",
    ]


def price_plots(times: Times) -> dict[str, str]:
    """Return the plots of Fig. 11 and of Figs. 12 and 13, by file name."""
    volumes, shares = list(run.VOLUMES_GB), [float(share * 100) for share in SHARES]
    machines = {
        name: [float(_machines_usd(times, name, volume)) for volume in volumes]
        for name in (run.END_TO_END, run.MULTI_ROUTE)
    }
    outbound = {"each option": [float(OUTBOUND_USD_PER_GB * volume) for volume in volumes]}
    x = "volume of the paper [GB]"
    costs = [
        LinePlot(Frame("Fig. 11a: cost of machines", x, "USD"), volumes, machines),
        LinePlot(Frame("Fig. 11b: cost of outbound traffic", x, "USD"), volumes, outbound),
    ]
    spans = {name: _per_gb(_ratios(times, name)) for name in SERVICES}
    known = {name: span for name, span in spans.items() if not span.is_empty}
    usage = {name: [float(span.at(share)) for share in SHARES] for name, span in known.items()}
    unified = {name: [price + float(OUTBOUND_USD_PER_GB) for price in line] for name, line in usage.items()}
    x = "place in the margin, from end to end to multi-route [percent]"
    prices = [
        LinePlot(Frame("Fig. 12: price of the service per GB", x, "USD"), shares, usage),
        LinePlot(Frame("Fig. 13: with outbound traffic", x, "USD"), shares, unified),
    ]
    return {"taas-fig11.svg": line_plots(costs), "taas-fig12.svg": line_plots(prices)}


def _total_s(times: Times, option: str) -> Fraction:
    return exact(sum(times[option].values()))


def _ratios(times: Times, service: str) -> TimeRatios:
    """Return a and b from the times of all volumes together."""
    e2e = _total_s(times, run.END_TO_END)
    return TimeRatios(e2e / _total_s(times, run.MULTI_ROUTE), e2e / _total_s(times, service))


def _machines_usd(times: Times, option: str, volume_gb: int) -> Fraction:
    """Return the cost of an option's machines for a volume, with times scaled to the assumed rate of multi-route."""
    hours_per_s = sum(run.VOLUMES_GB) / UMR_GB_PER_HOUR / _total_s(times, run.MULTI_ROUTE)
    machines = END_NODES + (run.EXTRA_NODES if option == run.MULTI_ROUTE else 0)
    return exact(times[option][volume_gb]) * hours_per_s * machines * MACHINE_USD_PER_HOUR


def _per_gb(ratios: TimeRatios) -> Margin:
    """Return the range of the service's price per GB. It may be empty."""
    return margin(ratios, run.EXTRA_NODES, MACHINE_USD_PER_HOUR).per_gb(ratios.service_per_umr / UMR_GB_PER_HOUR)


def _ratio_cells(ratios: TimeRatios, nodes_per_application: int) -> list[str]:
    bounds, per_gb = margin(ratios, run.EXTRA_NODES, 1), _per_gb(ratios)
    energy = energy_ratio(1, run.EXTRA_NODES, nodes_per_application, ratios.service_per_umr)
    empty = " (empty)" if bounds.is_empty else ""
    return [
        f"{float(ratios.e2e_per_umr):.2f}",
        f"{float(ratios.e2e_per_service):.2f}",
        f"{float(ratios.service_per_umr):.2f}",
        f"{least_extra_nodes(ratios)}",
        f"{float(bounds.lower_usd):.2f} to {float(bounds.upper_usd):.2f}{empty}",
        _usd(per_gb),
        _usd(per_gb.plus(OUTBOUND_USD_PER_GB)),
        f"{float(energy):.2f}",
    ]


def _usd(span: Margin) -> str:
    return f"${float(span.lower_usd):.5f} to ${float(span.upper_usd):.5f}"
