"""`tradewind accelerate up`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.cli.flows_file import flows_file
from tradewind.cli.terminal import can_ask, confirm
from tradewind.errors import UsageError
from tradewind.model.sites import CONFIRM_ABOVE_USD
from tradewind.model.units import format_usd, parse_duration_s, parse_usd

if TYPE_CHECKING:
    from tradewind.cli.detach import DetachedProcess
    from tradewind.engine.engine import Engine

OPTIONS = ("flows", "sky", "detach", "max_cost", "for_time", "resume")
ARGUMENTS = "FLOWS"


def add_arguments(parser: ArgumentParser) -> None:
    """Add where it runs, how long, and what it may cost."""
    parser.add_argument(
        "--sky",
        metavar="FILE",
        help="up: run the proxies in the emulated WAN of a sky file, instead of at the configured sites",
    )
    parser.add_argument(
        "--resume",
        metavar="ID",
        help="up: end what a killed supervisor left of an acceleration, and start it again with the same flows, place,"
        " ceiling and cost so far",
    )
    parser.add_argument("--detach", action="store_true", help="up: return when the flows may connect")
    parser.add_argument(
        "--max-cost", metavar="USD", type=typed(parse_usd), help="up: end before machines and egress cost more"
    )
    parser.add_argument(
        "--for", dest="for_time", metavar="TIME", type=typed(parse_duration_s), help="up: end after this time"
    )


def run(args: Namespace) -> int:
    """Place the flows, start the proxies, and watch them until `down`, Ctrl-C, `--for` or the ceiling ends them."""
    flows = flows_file(args)
    if args.resume is not None and (flows, args.sky) != (None, None):
        raise UsageError(
            "--resume starts the same flows at the same place, so --flows and --sky exclude it",
            hint="leave them out; `tradewind accelerate replan` changes the flows afterwards",
        )
    if flows is None and args.resume is None:
        raise UsageError("accelerate up needs a flows file", hint="`tradewind accelerate --help` shows how")
    args.flows = flows
    left: DetachedProcess | None = None
    if args.detach:
        from tradewind.cli.detach import detach

        outcome = detach(say=False, as_json=args.json)
        if isinstance(outcome, int):
            return outcome
        left = outcome
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        return _supervise(args, engine, left)


def _supervise(args: Namespace, engine: Engine, left: DetachedProcess | None) -> int:
    from tradewind.cli.orphans import end_orphans_beside
    from tradewind.engine.acceleration_up import acceleration_at_sites, acceleration_in_sky, resumed_acceleration
    from tradewind.render.acceleration import acceleration_lines, address_lines

    def say(line: str) -> None:
        # A line that cannot be written, such as on a full disk, must end no flow.
        with suppress(OSError):
            if not args.quiet:
                print(line, file=sys.stderr, flush=True)

    end_orphans_beside(args, engine, without=args.resume)
    with ExitStack() as stack:
        if args.resume is not None:
            sites = args.configuration.sites()
            wanted = stack.enter_context(resumed_acceleration(engine.control, args.resume, sites))
        elif args.sky is None:
            wanted = acceleration_at_sites(engine.control, args.flows, args.configuration.sites())
        else:
            wanted = stack.enter_context(acceleration_in_sky(engine.control, args.flows, args.sky))
        for line in wanted.lines():
            say(line)
        usd_max = args.max_cost
        if usd_max is None and wanted.former is not None:
            usd_max = wanted.former.state.usd_max
        _agree(args, wanted.usd_per_period, usd_max)
        running = wanted.start(say, usd_max=usd_max, lasting_s=args.for_time)
        try:
            state = running.start()
            if args.json:
                print(json.dumps(state.document()), flush=True)
            else:
                for line in address_lines(state):
                    print(line, flush=True)
            say(f"acceleration {state.id} runs: `tradewind accelerate down {state.id}` ends it")
            if left is not None:
                left.leave(state.id, str(running.folder))
            state = running.watch()
        except KeyboardInterrupt:
            state = running.down(0.0, "interrupted")
            if state.phase == "failed":
                raise  # It never ran.
        except BaseException as error:
            running.close(str(error) or type(error).__name__)
            raise
        finally:
            running.close()
    for line in acceleration_lines(state):
        say(line)
    return 0


def _agree(args: Namespace, usd: float, usd_max: float | None) -> None:
    """Ask whether it may cost so much. Raises UsageError without an agreement."""
    sites = args.configuration.sites()
    confirm_above_usd = CONFIRM_ABOVE_USD if sites is None else sites.fleet.confirm_above_usd
    if args.yes or usd_max is not None or usd <= confirm_above_usd:
        return
    if not can_ask():
        raise UsageError(
            f"the acceleration is expected to cost {format_usd(usd)} in a period: no terminal to confirm it",
            hint="confirm with -y, or set a ceiling with --max-cost",
        )
    confirm(f"The acceleration is expected to cost {format_usd(usd)} in a period. Start it?")
