"""`tradewind fleet up`, and the words about warm fleets in lists and receipts."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.cli.terminal import can_ask, confirm
from tradewind.errors import UsageError
from tradewind.model.units import format_duration, format_usd, parse_duration_s, parse_usd

if TYPE_CHECKING:
    from tradewind.engine.engine import Engine
    from tradewind.engine.fleets import WarmReceipt

__all__ = ["add_warm_arguments", "bring_up", "show_receipt"]


def add_warm_arguments(parser: ArgumentParser) -> None:
    """Add the options of `up`."""
    group = parser.add_argument_group("warm fleets (up)")
    group.add_argument("--machines", type=int, metavar="N", help="machines in each region (default: 1)")
    group.add_argument(
        "--idle",
        type=typed(parse_duration_s),
        metavar="TIME",
        help="machines end when no transfer has used them for this time (default: 30min)",
    )
    group.add_argument(
        "--lease",
        type=typed(parse_duration_s),
        metavar="TIME",
        help="machines end after this time, used or not (default: 4h)",
    )
    group.add_argument(
        "--max-cost", type=typed(parse_usd), metavar="USD", help="refuse a fleet that may cost more until its end"
    )


def bring_up(args: Namespace, engine: Engine) -> int:
    """Start a warm fleet. Raises UsageError without an agreement to its cost."""
    from tradewind.engine.warm import IDLE_S, KEPT_S

    if not args.fleets:
        raise UsageError("`fleet up` needs a region", hint="for example `tradewind fleet up aws:us-east-1`")
    sites = args.configuration.sites()
    if not sites:
        raise UsageError(
            "the configuration has no hosts, clusters or clouds",
            hint="`tradewind init` looks for some; docs/guides/fleet.md shows how to add others",
        )
    kept_s = KEPT_S if args.lease is None else args.lease
    idle_s = min(kept_s, IDLE_S) if args.idle is None else args.idle
    machines = 1 if args.machines is None else args.machines
    wanted = engine.warm_up(sites, args.fleets, machines=machines, idle_s=idle_s, kept_s=kept_s)
    if not args.quiet and not args.json:
        for note in wanted.notes:
            print(f"note: {note}", file=sys.stderr)
    if args.max_cost is not None and wanted.usd_most > args.max_cost:
        raise UsageError(
            f"{wanted}: more than --max-cost {format_usd(args.max_cost)}",
            hint="choose a shorter --lease or fewer --machines",
        )
    if args.max_cost is None and not args.yes and wanted.usd_most > sites.fleet.confirm_above_usd:
        if not can_ask():
            raise UsageError(
                f"{wanted}, and there is no terminal on which to confirm it",
                hint="confirm with -y, or set a ceiling with --max-cost",
            )
        confirm(f"{wanted}. Start?")
    fleet = wanted.start(lambda line: print(f"warning: {line}", file=sys.stderr))
    until_unix_s = time.time() + min(kept_s, idle_s)
    if args.json:
        document = {
            "id": fleet,
            "machines": {name: one.region for name, one in wanted.machines.items()},
            "usd_per_hour": wanted.usd_per_hour,
            "usd_most": wanted.usd_most,
            "warm_until_unix_s": until_unix_s,
        }
        print(json.dumps(document))
    else:
        print(f"{fleet}: {wanted}")
        print(f"it ends after {format_duration(idle_s)} without a transfer; `tradewind fleet down {fleet}` ends it now")
    return 0


def show_receipt(args: Namespace, receipt: WarmReceipt) -> None:
    """Print what the machines of a warm fleet cost, and which part of that was idle time."""
    if args.json:
        print(
            json.dumps({"fleet": receipt.fleet, "usd": receipt.usd, "idle_usd": receipt.idle_usd, "uses": receipt.uses})
        )
        return
    print(
        f"{receipt.fleet}: ran {format_duration(receipt.machine_s)} of machine time for {format_usd(receipt.usd)}, "
        f"of which {format_duration(receipt.idle_s)} idle for {format_usd(receipt.idle_usd)}"
    )
