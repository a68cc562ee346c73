"""`tradewind market margins|simulate`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_usd

HELP = """\
Show the range of prices at which a transfer service pays off for its users and for itself; or simulate its market. A
user compares the service with a transfer end to end, which needs only a sender and a receiver, and with a multi-route
transfer over extra machines of its own. Nothing is started and nothing is charged.

margins shows the range for each number of extra machines, the costs, and the energy. A range can be empty.

simulate lets tenants choose between the service and machines of their own, with a fixed price, a price that follows the
utilisation, and an auction of each hour. It shows revenue, utilisation, the tenants' cost and the energy. The same seed
gives the same result; --seeds shows the mean and the standard deviation of several."""
USAGE = "[OPTION]… margins | simulate"
EXAMPLES = """\
  tradewind market margins
  tradewind market margins --extra-nodes 8 --machine-price 0.25USD
  tradewind market simulate --seed 7
  tradewind market simulate --seeds 6
  tradewind market simulate --seed 7 --hours 720 --tenants 40 --load 1.5 --json"""

#: Options of `simulate` alone, by their names in the engine.
SIMULATE_ONLY = ("seed", "seeds", "hours", "tenants", "load")
DEFAULT_SEED = 1


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the prices and the size of the simulation."""
    parser.add_argument("action", metavar="ACTION", choices=["margins", "simulate"], help="margins or simulate")
    parser.add_argument("--extra-nodes", metavar="N", type=int, help="machines of a multi-route transfer (default 5)")
    parser.add_argument(
        "--machine-price", metavar="USD", type=typed(parse_usd), help="price of a machine for an hour (default 0.10USD)"
    )
    parser.add_argument(
        "--outbound-price", metavar="USD", type=typed(parse_usd), help="price of a GB of traffic (default 0.09USD)"
    )
    parser.add_argument("--seed", metavar="S", type=int, help=f"simulate: seed (default {DEFAULT_SEED})")
    parser.add_argument("--seeds", metavar="N", type=int, help="simulate: number of seeds, counted up from --seed")
    parser.add_argument("--hours", metavar="H", type=int, help="simulate: hours (default 168)")
    parser.add_argument("--tenants", metavar="N", type=int, help="simulate: number of tenants (default 20)")
    parser.add_argument(
        "--load",
        metavar="X",
        type=float,
        help="simulate: mean volume of all transfers, divided by the capacity of the service (default 0.8)",
    )


def run(args: Namespace) -> int:
    """Show the margins, or simulate the market."""
    prices = {
        "extra_nodes": args.extra_nodes,
        "machine_usd_per_hour": args.machine_price,
        "outbound_usd_per_gb": args.outbound_price,
    }
    size = {name: getattr(args, name) for name in SIMULATE_ONLY}
    if args.action == "margins":
        if name := next((name for name, number in size.items() if number is not None), None):
            raise UsageError(f"--{name} is only for market simulate", hint="leave it out")
        from tradewind.engine.market import market_margins, market_scene

        return _show(args, market_margins(market_scene(**_given(prices))))
    from tradewind.engine.market import market_scene, simulate_market, simulate_seeds

    seeds = size.pop("seeds")
    scene = market_scene(**{"seed": DEFAULT_SEED, **_given(size | prices)})
    return _show(args, simulate_market(scene) if seeds is None else simulate_seeds(scene, seeds))


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _show(args: Namespace, report: Any) -> int:
    if args.json:
        print(json.dumps(report.document()))
    else:
        print("\n".join(report.lines()))
    return 0
