"""`tradewind accelerate generate`: problem files and flows files of typical use cases."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_bytes, parse_usd

CASES = ("one-to-many", "many-to-many", "many-one-to-one", "localized-one-to-many")
DEFAULT_FLOWS = 60
OPTIONS = ("count", "seed", "rtt", "provider", "size", "budget", "slow_start", "write_flows")
ARGUMENTS = f"CASE, one of {', '.join(CASES)}"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the size of the problem, its seed, its round trips and its budget."""
    parser.add_argument("--count", metavar="N", type=int, default=None, help="generate: number of flows (default 60)")
    parser.add_argument(
        "--seed", metavar="N", type=int, default=None, help="generate: the same seed gives the same problem (default 0)"
    )
    parser.add_argument(
        "--rtt",
        metavar="FILE",
        help="generate: round trips as CSV: src, dst, rtt_ms, and continent (of src) for localized-one-to-many",
    )
    parser.add_argument(
        "--provider",
        metavar="NAME",
        help="generate: without --rtt, use the catalog's regions of this provider (default gcp)",
    )
    parser.add_argument(
        "--size", metavar="SIZE", type=typed(parse_bytes), help="generate: size of a flow (default 2GB)"
    )
    parser.add_argument(
        "--budget", metavar="USD", type=typed(parse_usd), help="generate: total budget (default 0.50USD for each flow)"
    )
    parser.add_argument(
        "--write-flows",
        metavar="FILE",
        help="generate: also write a flows file, as TOML; the problem has the catalog's machines and prices",
    )
    parser.add_argument(
        "--slow-start", action="store_true", help="generate: completion times include handshakes and slow start"
    )


def run(args: Namespace) -> int:
    """Print the problem file of a use case."""
    hint = f"CASE is one of {', '.join(CASES)}"
    if not args.arguments:
        raise UsageError("missing CASE", hint=hint)
    case, *more = args.arguments
    if case not in CASES or more:
        raise UsageError(f"accelerate generate takes one CASE, not {' '.join(args.arguments)!r}", hint=hint)
    if args.rtt is not None and args.provider is not None:
        raise UsageError("--provider and --rtt exclude each other", hint="leave one of them out")
    if args.write_flows is not None and args.rtt is not None:
        raise UsageError(
            "--write-flows and --rtt exclude each other",
            hint="a flows file has the regions and round trips of the catalog; leave out --rtt",
        )
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        document = engine.use_case(
            case,
            DEFAULT_FLOWS if args.count is None else args.count,
            args.seed or 0,
            rtt=args.rtt,
            provider=args.provider or "gcp",
            size_bytes=args.size,
            budget_usd=args.budget,
            slow_start=args.slow_start,
            flows_file=args.write_flows,
        )
    print(json.dumps(document))
    return 0
