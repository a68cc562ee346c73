"""`--via`: who moves the bytes: this machine alone, or gateways along a planned overlay in an emulated WAN."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.request import Options
from tradewind.errors import SkyUnavailable, UsageError
from tradewind.model.region import Region
from tradewind.model.store import Access

if TYPE_CHECKING:
    from tradewind.engine.client import Client
    from tradewind.engine.jobs import JobRecord
    from tradewind.engine.setup import Setup
    from tradewind.model.plan import Plan
    from tradewind.sky.running import Sky

__all__ = ["chosen_setup", "provider_again", "sky_of"]

#: A plan that costs more than this is asked about on a terminal, unless -y or a ceiling was given.
ASK_ABOVE_USD = 1.0


@contextmanager
def chosen_setup(args: Namespace, options: Options, client: Client) -> Iterator[tuple[Setup | None, Options]]:
    """The way that `--via` asks for, planned, shown and agreed to, and the options with what follows from it.

    None where no overlay is asked for, or `auto` finds none. A sky that was started for the transfer ends with the
    block.

    Raises:
        UsageError: regions or the file are missing, or the user says no.
        TradewindError: no plan meets the goal; the sky cannot be started.
    """
    if args.via == "local" and (args.sky is not None or args.replan):
        raise UsageError(f"--{'replan' if args.sky is None else 'sky'} goes with --via sky")
    reason = _why_local(args, options) if args.via == "auto" else None
    if reason is not None:
        _note_local(args, reason)
    if args.via == "local" or reason is not None:
        yield None, options
        return
    if args.topology is not None:
        raise UsageError(
            "--topology and --via cannot be combined: both choose the gateways", hint="leave one of them out"
        )
    if args.sky is None:
        raise UsageError("--via sky needs --sky FILE", hint="the format: docs/reference/sky.md")
    if len(args.destinations) != 1 or not isinstance(options.destination, Access):
        raise UsageError("--via sky takes one destination")
    regions = _side(options.source.region, "--src-region"), _side(options.destination.region, "--dst-region")
    missing, there = _missing(args.sky, map(str, regions))
    if missing is not None:
        raise UsageError(f"the sky has no machine in {missing}", hint=f"it has some in {', '.join(there)}")
    with ExitStack() as stack:
        sky = _entered(stack, args)
        yield (None, options) if sky is None else _planned(args, options, client, sky, regions)


def _entered(stack: ExitStack, args: Namespace) -> Sky | None:
    """The sky; None, and said why, where this host cannot run one and `auto` leaves the choice. Raises SkyError."""
    try:
        return stack.enter_context(sky_of(args.sky, args.state_dir))
    except SkyUnavailable as error:
        if args.via != "auto":
            raise
        _note_local(args, str(error))
        return None


def _note_local(args: Namespace, reason: str) -> None:
    if not (args.quiet or args.json):
        print(f"note: --via auto uses this machine: {reason}", file=sys.stderr)


def _why_local(args: Namespace, options: Options) -> str | None:
    """Why no overlay comes into question; None if one does. Raises SkyFileError."""
    if args.topology is not None:
        return "--topology sets the routes"
    if args.sky is None:
        return "no sky is given (--sky)"
    if len(args.destinations) != 1 or not isinstance(options.destination, Access):
        return "there are several destinations"
    sides = options.source.region, options.destination.region
    if None in sides:
        return "the regions of both sides are not set (--src-region, --dst-region)"
    if sides[0] == sides[1]:
        return "both sides are in one region"
    missing, _ = _missing(args.sky, filter(None, sides))
    return None if missing is None else f"the sky has no machine in {missing}"


def _missing(file: str, regions: Iterable[str]) -> tuple[str | None, list[str]]:
    """The first of the regions that the sky file has no machine in, and those that it has. Raises SkyFileError."""
    from tradewind.sky.file import read_sky_file

    there = sorted({str(machine.region) for machine in read_sky_file(file).machines})
    return next((region for region in regions if region not in there), None), there


def _planned(
    args: Namespace, options: Options, client: Client, sky: Sky, regions: tuple[Region, Region]
) -> tuple[Setup, Options]:
    from tradewind.catalog.load import catalog_folder, load_catalog
    from tradewind.cli.plan_preview import goal_of, goal_options
    from tradewind.engine.overlay import pace_bytes_per_s, plan_overlay, with_room_for
    from tradewind.engine.replan import Question
    from tradewind.engine.setup import planned_setup, single_setup
    from tradewind.fleet.sky_catalog import sky_catalog
    from tradewind.model.goal import Fastest
    from tradewind.planner.network import Limits
    from tradewind.sky.file import read_sky_file

    goals = goal_options(args)
    if len(goals) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(goals)}")
    provider = {"kind": "sky", "sky": str(sky.folder), "file": os.path.abspath(args.sky)}
    counted = client.start(
        args.sources, args.destinations, replace(options, dry_run=True), setup=single_setup(str(regions[0]), provider)
    ).wait()
    volume_gb = counted.progress.bytes_total / 1e9
    if volume_gb <= 0:
        return single_setup(str(regions[0]), provider), options
    network = read_sky_file(args.sky)
    catalog = sky_catalog(network, load_catalog(catalog_folder(args.state_dir)))
    limits = Limits(machines_per_region=args.max_vms or len(sky.machines))
    goal = goal_of(args, volume_gb) or Fastest()
    objects = counted.progress.objects_total or None
    plan = plan_overlay(catalog, *regions, volume_gb, goal, limits, objects=objects)
    if args.dry_run:
        if not (args.quiet or args.json):
            print(f"plan    {plan.overlay}", file=sys.stderr)
        return single_setup(str(regions[0]), provider), options
    _agree(args, plan)
    options = replace(options, chunk_bytes=_chunk_bytes(args, options, plan, network.scale))
    plan = with_room_for(plan, options.chunk_bytes)
    ceiling_usd = _ceiling_usd(args, volume_gb)
    question = Question(
        catalog,
        *regions,
        goal,
        limits,
        options.chunk_bytes,
        ceiling_usd,
        limit_bytes_per_s=options.limit_bytes_per_s,
        objects=objects,
    )
    pace = pace_bytes_per_s(plan)
    if pace is not None:
        options = replace(options, limit_bytes_per_s=min(pace, options.limit_bytes_per_s or pace))
    options = replace(options, max_cost_usd=_egress_ceiling_usd(plan, ceiling_usd))
    setup = planned_setup(plan, provider, ceiling_usd=ceiling_usd, question=question, replan=args.replan)
    return setup, options


def _side(text: str | None, flag: str) -> Region:
    if text is None:
        raise UsageError(f"a plan needs the region of both sides: {flag}", hint=f"e.g. {flag} aws:us-east-1")
    try:
        return Region.parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


@contextmanager
def sky_of(path: str, state_dir: str | None) -> Iterator[Sky]:
    """The sky of the file: as it is if it is up, else for as long as the block lasts."""
    from tradewind.sky.control import SkyControl
    from tradewind.sky.folders import sky_folder
    from tradewind.sky.running import Sky

    file = Path(path)
    folder = sky_folder(state_dir, file)
    if SkyControl(str(folder / "control.sock")).is_answered():
        yield Sky.attach(folder)
        return
    with Sky.up(file) as sky:
        yield sky


@contextmanager
def provider_again(record: JobRecord, state_dir: str | None) -> Iterator[Mapping[str, Any] | None]:
    """Provide the machines of a resumed job. A sky that is down by now is brought up for the duration of the block.

    Raises SkyError, SkyFileError.
    """
    from tradewind.sky.control import SkyControl
    from tradewind.sky.folders import remove_left

    provider = record.document.get("provider")
    up = provider is not None and "sky" in provider and SkyControl(f"{provider['sky']}/control.sock").is_answered()
    if provider is None or "file" not in provider or up:
        yield provider
        return
    with sky_of(provider["file"], state_dir) as sky:
        remove_left(Path(provider["sky"]))
        yield {**provider, "sky": str(sky.folder)}


def _ceiling_usd(args: Namespace, volume_gb: float) -> float | None:
    """--max-cost in USD; None without one."""
    if args.max_cost is None:
        return None
    kind, usd = args.max_cost
    total_usd: float = usd * volume_gb if kind == "usd_per_gb" else usd
    return total_usd


def _egress_ceiling_usd(plan: Plan, ceiling_usd: float | None) -> float | None:
    """Return the part of the ceiling that is left for egress after the machines; None without a ceiling or prices."""
    if ceiling_usd is None or plan.overlay is None or plan.mean_usd_per_gb == 0:
        return None
    return ceiling_usd - plan.overlay.cost.machines_usd - plan.overlay.cost.requests_usd


def _chunk_bytes(args: Namespace, options: Options, plan: Plan, scale: float) -> int:
    """Return a chunk size for the plan and the destination's store; a requested size is kept."""
    from tradewind.engine.overlay import chunk_bytes_for
    from tradewind.model.job import DEFAULT_CHUNK_BYTES, MIN_CHUNK_BYTES, MIN_FILE_CHUNK_BYTES
    from tradewind.model.url import parse_url

    if options.chunk_bytes != DEFAULT_CHUNK_BYTES:
        return options.chunk_bytes
    any_size = parse_url(args.destinations[0], cwd="/").kind in ("file", "mem")
    return chunk_bytes_for(plan, scale, MIN_FILE_CHUNK_BYTES if any_size else MIN_CHUNK_BYTES)


def _agree(args: Namespace, plan: Plan) -> None:
    """Asks before a plan is paid for that costs more than ASK_ABOVE_USD. Raises UsageError for a no."""
    from tradewind.cli.transferring import confirm
    from tradewind.model.amounts import format_usd

    if plan.prediction is None or plan.prediction.cost_usd <= ASK_ABOVE_USD or args.yes or args.max_cost is not None:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        confirm(f"{plan.overlay}. Spend {format_usd(plan.prediction.cost_usd)}?")
