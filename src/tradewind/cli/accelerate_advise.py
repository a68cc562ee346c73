"""`tradewind accelerate advise`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tradewind.errors import UsageError

if TYPE_CHECKING:
    from tradewind.render.advice import AdviceReport

OPTIONS = ("flows", "algorithm", "time_limit")
ARGUMENTS = "HOST:PORT or URL"


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: all options of this action belong to others, too."""


def run(args: Namespace) -> int:
    """Show what limits flows, what tuning their ends gains for free, and what proxies add."""
    if bool(args.arguments) == (args.flows is not None) or len(args.arguments) > 1:
        raise UsageError(
            "accelerate advise needs either --flows or one address", hint="for example advise files.example.org:443"
        )
    report = _advised(args)
    if args.json:
        print(json.dumps(report.document()))
    else:
        print("\n".join(report.lines()))
    return 0


def _advised(args: Namespace) -> AdviceReport:
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if args.flows is None:
            if args.algorithm or args.time_limit:
                raise UsageError("--algorithm and --time-limit need --flows", hint="leave them out")
            return engine.advise(args.arguments[0])
        return engine.advise_flows(
            args.flows, args.algorithm or "auto", sites=args.configuration.sites(), time_limit_s=args.time_limit
        )
