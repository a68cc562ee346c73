"""`tradewind measure`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.cli.config import parse_count
from tradewind.cli.terminal import can_ask, confirm
from tradewind.model.units import format_count, format_duration, format_gbps, format_usd, parse_duration_s, parse_usd

if TYPE_CHECKING:
    from tradewind.engine.measuring import Measurement
    from tradewind.measure.campaign import MeasuredLink

USAGE = "[OPTION]… --sky FILE [REGION|FROM,TO]…"
HELP = """\
Measure links with probes between gateways on machines in each region. Probes that would disturb each other do not run
at the same time. A probe measures the data rate at 64 connections, the round trip, and the share of retransmitted
packets. REGION… means all ordered pairs of these regions, FROM,TO one pair; the default is all regions of the sky. The
cost is shown before any of it is spent, and the campaign ends before a round that could exceed --max-cost. --out writes
the results in the format of `tradewind catalog import`. They are never imported automatically, because the rates of a
sky are not those of the real world."""
EXAMPLES = """\
  tradewind measure --sky world.json
  tradewind measure --sky world.json aws:us-east-1 gcp:europe-west4 --out links.csv
  tradewind measure --sky world.json aws:us-east-1,azure:westus --for 10s --max-cost 0.50USD"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add regions, times, budget and output."""
    parser.add_argument("links", metavar="REGION", nargs="*", help="regions, or FROM,TO")
    parser.add_argument(
        "--sky", metavar="FILE", required=True, help="sky file; its sky is started if it is not running"
    )
    parser.add_argument(
        "--connections",
        metavar="N",
        type=typed(parse_count),
        default=64,
        help="connections per probe, 1 to 64 (default 64)",
    )
    parser.add_argument(
        "--warm-up",
        metavar="TIME",
        type=typed(parse_duration_s),
        default=4.0,
        help="warm-up before the measured time (default 4s)",
    )
    parser.add_argument(
        "--for",
        dest="lasting",
        metavar="TIME",
        type=typed(parse_duration_s),
        default=5.0,
        help="measured time (default 5s)",
    )
    parser.add_argument("--max-cost", metavar="USD", type=typed(parse_usd), help="stop before the cost exceeds this")
    parser.add_argument("--out", metavar="FILE", help="write the links to a CSV file")


def run(args: Namespace) -> int:
    """Measure. Raises CeilingReached if the budget was too small for all links."""
    from tradewind.cli.orphans import ending_orphans
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        measurement = engine.measure(
            args.sky,
            args.links,
            connections=args.connections,
            warm_up_s=args.warm_up,
            measure_s=args.lasting,
            max_cost_usd=args.max_cost,
        )
        _announce(args, measurement)
        try:
            with ending_orphans(args, engine), closing(measurement.run()) as links:
                for link in links:
                    _show(args, link)
        finally:
            # Write the results even of an interrupted campaign, which was paid for. Without any, keep an existing file.
            if measurement.measured:
                _finish(args, measurement)
    return 0


def _finish(args: Namespace, measurement: Measurement) -> None:
    if args.out:
        measurement.write(args.out)
    if not args.json:
        egress_usd, machines_usd = measurement.egress_usd, measurement.machines_usd
        print(
            f"{format_count(len(measurement.measured), 'link')} for {format_usd(egress_usd + machines_usd)}: "
            f"{format_usd(egress_usd)} egress, {format_usd(machines_usd)} machines",
            file=sys.stderr,
        )


def _announce(args: Namespace, measurement: Measurement) -> None:
    """Print time and cost in advance; ask for a confirmation if the cost is high."""
    quote = measurement.quote
    count = sum(len(of) for of in quote.rounds)
    line = (
        f"{format_count(count, 'link')} between {format_count(len(measurement.regions), 'region')} "
        f"in {format_count(len(quote.rounds), 'round')}, "
        f"{format_duration(quote.seconds)}, about {format_usd(quote.usd)} and at most {format_usd(quote.usd_most)}"
    )
    if not (args.quiet or args.json):
        print(f"measure {line}", file=sys.stderr)
        if measurement.unpriced:
            print(f"note: no price is known for {', '.join(measurement.unpriced)}: counted as free", file=sys.stderr)
    if measurement.needs_confirmation and not args.yes and can_ask():
        confirm(f"Spend up to {format_usd(quote.usd_most)}?")


def _show(args: Namespace, link: MeasuredLink) -> None:
    again = link.result.sent_again
    if args.json:
        print(
            json.dumps(
                {
                    "src": str(link.src),
                    "dst": str(link.dst),
                    "gbps": link.result.gbps,
                    "rtt_ms": link.result.rtt_ms,
                    "sent_again": again,
                    "cost_usd": link.usd,
                }
            ),
            flush=True,
        )
        return
    lost = "" if again is None else f"  {again:7.2%} retransmitted"
    print(f"{link.src} → {link.dst}  {format_gbps(link.result.gbps)}  {link.result.rtt_ms:.1f} ms{lost}", flush=True)
