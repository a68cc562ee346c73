"""Common code of cp, sync and mv: their options, and the run of one job from the first line to the exit code."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from tradewind.cli.arguments import add_setting, typed
from tradewind.cli.attributes import add_attribute_arguments, attribute_rules, named_values, object_lock
from tradewind.cli.lending import add_lending_arguments, with_lending
from tradewind.cli.options import (
    COST_EXAMPLES,
    access,
    accesses,
    add_filter_arguments,
    add_side_arguments,
    goal_options,
    object_filter,
    parse_cost,
    parse_machines,
    parse_ratio,
    parse_routes,
)
from tradewind.cli.streams import require_input
from tradewind.cli.terminal import can_ask, confirm
from tradewind.engine.request import Options
from tradewind.engine.sources import STANDARD_INPUT
from tradewind.errors import FleetTaken, TradewindError, UsageError
from tradewind.model.codec import AUTO, OFF
from tradewind.model.network_tier import check_network_tiers
from tradewind.model.units import parse_bytes, parse_duration_s, parse_rate_gbps

if TYPE_CHECKING:
    from tradewind.cli.detach import DetachedProcess
    from tradewind.cli.plan_preview import PreviewLines
    from tradewind.engine.engine import Engine
    from tradewind.engine.proposal import Proposal, Request
    from tradewind.model.sites import Sites

#: Maximum number of sources in the first line of a job.
SOURCES_SHOWN_MAX = 3
#: Maximum plans for a transfer, each after the warm fleet of the one before was taken by another.
PLANS_MAX = 3


def add_transfer_arguments(parser: ArgumentParser, *, copies: bool = True) -> None:
    """Add all options of a transfer. With `copies` also those of cp and mv, which sync does not have."""
    _add_object_arguments(parser)
    _add_existing_arguments(parser, copies)
    add_filter_arguments(parser)
    add_attribute_arguments(parser)
    _add_limit_arguments(parser)
    _add_goal_arguments(parser)
    _add_gateway_arguments(parser)
    add_side_arguments(parser, "src", "source side")
    add_side_arguments(parser, "dst", "destination side", repeated=True)
    add_lending_arguments(parser)
    files = parser.add_argument_group("local files")
    files.add_argument("--fsync", action="store_true", help="flush to the disk before a write counts as done")
    files.add_argument(
        "--follow-symlinks", action="store_true", help="copy what symbolic links point to (else they are skipped)"
    )


def _add_object_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help="sources, and the destination last")
    parser.add_argument(
        "--to",
        dest="to",
        action="append",
        metavar="DST",
        help="destination; can be repeated, and each gets everything. Every PATH is then a source",
    )
    parser.add_argument(
        "--as-subdir", action="store_true", help="copy a directory to a directory of its name below DST"
    )
    parser.add_argument(
        "--files-from",
        metavar="FILE",
        help="copy only the keys in FILE (- is standard input), one per line, relative to SRC; read once, at the start",
    )
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if the source is empty")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show the plan and the first objects that would be copied, and copy nothing",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="print the job id and return as soon as the job runs in the background",
    )
    parser.add_argument(
        "--explain",
        metavar="KEY",
        help="explain why KEY, relative to SRC, is included or excluded (sync: copied or skipped); copy nothing",
    )
    parser.add_argument("--report", metavar="FILE", help="write a JSON verdict for each object, one per line")
    add_setting(parser, "verify", metavar="auto|read")


def _add_existing_arguments(parser: ArgumentParser, copies: bool) -> None:
    """Add --ignore-existing. Its short form is that of cp; for other tools that synchronise, -n means --dry-run."""
    flags = ("-n", "--ignore-existing", "--no-clobber", "--no-overwrite") if copies else ("--ignore-existing",)
    parser.add_argument(
        *flags,
        dest="ignore_existing",
        action="store_true",
        help="skip objects whose names exist at DST, whatever their content; never replace one",
    )
    if copies:
        parser.add_argument(
            "--flatten",
            action="store_true",
            help="leave out the directories of names: d/x/a becomes a. A second object with the same name fails",
        )


def _add_limit_arguments(parser: ArgumentParser) -> None:
    speed = parser.add_argument_group("speed and limits")
    add_setting(speed, "limit_rate", metavar="RATE")
    add_setting(speed, "chunk_size", metavar="SIZE")
    add_setting(speed, "concurrency", metavar="N")
    add_setting(speed, "stall", metavar="TIME")
    add_setting(speed, "duplicates", metavar="PERCENT")
    add_setting(speed, "store_work", metavar="TIME")
    speed.add_argument(
        "--max-bytes",
        metavar="SIZE",
        type=typed(parse_bytes),
        help="maximum bytes to send in all runs of the job; lost bytes count, but not requests repeated to a "
        "destination store (exit code 8)",
    )


def _add_goal_arguments(parser: ArgumentParser) -> None:
    goal = parser.add_argument_group(
        "goal of the plan (at most one; default: the fastest at the cost of the direct path; --via sky: the fastest)",
        "Between stores in known regions (as the store reports, or set with --src-region aws:us-east-1), --dry-run\n"
        "shows the machines that would reach the goal, and their cost. With --via fleet or sky the transfer runs on\n"
        "machines; without --via, the hosts and clouds of the configuration are used if that is faster.",
    )
    goal.add_argument(
        "--max-cost",
        metavar="USD",
        type=typed(parse_cost),
        help=f"fastest within this budget: {COST_EXAMPLES}; with --topology a ceiling by the prices in FILE",
    )
    goal.add_argument(
        "--min-throughput", metavar="RATE", type=typed(parse_rate_gbps), help="cheapest at this minimum rate"
    )
    goal.add_argument(
        "--deadline",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="cheapest within this time, from the start of the job; exit code 9 if it ends later",
    )
    goal.add_argument(
        "--max-vms", metavar="N", type=typed(parse_machines), help="maximum machines per region (default 8)"
    )
    goal.add_argument(
        "--routes",
        metavar="N",
        type=typed(parse_routes),
        help="maximum routes between gateways (default: as many as help)",
    )
    goal.add_argument(
        "--tier",
        metavar="TIER",
        type=typed(check_network_tiers),
        help="network tier of machines at Google and Azure: premium, standard, or best, the better one for each "
        "machine (default: as configured)",
    )


def _add_gateway_arguments(parser: ArgumentParser) -> None:
    gateways = parser.add_argument_group("gateways")
    gateways.add_argument(
        "--topology", metavar="FILE", help="send through the gateways in FILE (docs/reference/topology.md)"
    )
    gateways.add_argument(
        "--via",
        choices=("local", "fleet", "sky", "auto"),
        help="where the bytes go: local: through this machine; fleet: through gateways on your hosts and in your "
        "clouds, as planned (docs/guides/fleet.md); sky: through gateways in the machines of a sky; auto: sky or fleet "
        "if there are machines in the regions of both sides (and a fleet is faster), else local. Default: sky if --sky "
        "is given, else auto",
    )
    gateways.add_argument(
        "--sky",
        metavar="FILE",
        help="sky file for --via sky (the default with this option) and auto; the sky is started for this job if it is "
        "not running",
    )
    gateways.add_argument(
        "--replan",
        action="store_true",
        help="with --via fleet or sky: replan and change the routes when a route is much slower than planned",
    )
    add_setting(gateways, "compress", metavar="CODEC")
    gateways.add_argument(
        "--compression-ratio",
        metavar="R",
        type=typed(parse_ratio),
        help="with --via fleet or sky, and --compress: expected bytes sent per byte of data, above 0 and at most 1; "
        "the plan predicts rate and cost with it (default 1)",
    )
    add_setting(gateways, "dedup", metavar="on|off")
    add_setting(gateways, "dedup_window", metavar="SIZE")
    gateways.add_argument("--keep-logs", action="store_true", help="keep the gateways' logs in the job's folder")


def split_paths(args: Namespace) -> None:
    """Set `sources`, `source` (the first) and `destinations` of the arguments. Raises UsageError."""
    if not args.paths:
        raise UsageError("no source", hint=f"`tradewind {args.verb} SRC… DST`, or SRC… --to DST [--to DST]…")
    sources, destinations = (args.paths, args.to) if args.to else (args.paths[:-1], args.paths[-1:])
    if not sources:
        raise UsageError(f"{args.paths[0]}: no destination", hint=f"`tradewind {args.verb} SRC… DST`, or --to DST")
    args.sources, args.source, args.destinations = sources, sources[0], destinations


def options_from(args: Namespace, *, recursive: bool) -> Options:
    """Return the library's options of a transfer from the arguments. Raises UsageError."""
    split_paths(args)
    if args.files_from == STANDARD_INPUT:
        require_input()
    kind, usd = (args.max_cost if args.topology else None) or (None, None)
    reached = tuple(
        with_lending(one, args, "dst") for one in accesses(args, "dst", args.destinations, fsync=args.fsync)
    )
    return Options(
        recursive=recursive,
        as_subdir=args.as_subdir,
        filter=object_filter(args),
        files_from=args.files_from,
        ignore_existing=args.ignore_existing,
        flatten=getattr(args, "flatten", False),
        verify=args.verify,
        allow_empty=args.allow_empty,
        chunk_bytes=args.chunk_size,
        concurrency=args.concurrency,
        storage_class=args.storage_class,
        object_lock=object_lock(args),
        attributes=attribute_rules(args),
        tags=named_values("--tag", args.tag),
        source_tags=args.tags,
        preserve=args.preserve,
        compress=args.compress != OFF,
        codec=AUTO if args.compress == OFF else args.compress,
        deduplicate=args.dedup == "on",
        dedup_window_bytes=args.dedup_window,
        max_cost_usd=usd if kind == "usd" else None,
        max_usd_per_gb=usd if kind == "usd_per_gb" else None,
        max_bytes=args.max_bytes,
        limit_bytes_per_s=args.limit_rate,
        stall_s=max(1, round(args.stall)),
        duplicate_fraction_max=args.duplicates,
        store_work_s=None if args.store_work is None else max(1, round(args.store_work)),
        dry_run=args.dry_run,
        report_file=args.report,
        source=with_lending(access(args, "src", follow_symlinks=args.follow_symlinks), args, "src"),
        destination=reached[0] if len(set(reached)) == 1 else reached,
    )


def transfer(args: Namespace, options: Options) -> int:
    """Run the job and return its exit code; with --detach as soon as it runs."""
    if args.explain is not None:
        explain(args, options)
    if not args.detach:
        return _run(args, options, None)
    if args.dry_run:
        raise UsageError("--detach and --dry-run cannot be combined", hint="a dry run ends at once")
    from tradewind.cli.detach import detach

    detached = detach(say=not (args.json or args.quiet), as_json=args.json)
    return detached if isinstance(detached, int) else _run(args, options, detached)


def _run(args: Namespace, options: Options, detached: DetachedProcess | None) -> int:
    from tradewind.cli.orphans import ending_orphans
    from tradewind.cli.plan_preview import PreviewLines
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        request = request_of(args, options)
        preview = PreviewLines(args, engine.preview(request))
        preview.say_before()
        if args.dry_run:
            return _start(args, engine, request, preview, None, detached)
        with ending_orphans(args, engine):
            note = _unfinished(engine, args) if args.json or not args.quiet else None
            code = _start(args, engine, request, preview, note, detached)
            if args.jobs_prune_after is not None:
                _prune_jobs(engine, args)
        return code


def _start(
    args: Namespace,
    engine: Engine,
    request: Request,
    preview: PreviewLines,
    note: str | None,
    detached: DetachedProcess | None,
) -> int:
    """Propose, agree, start and follow the transfer; propose again if its warm fleet was taken in the meantime."""
    from tradewind.cli.follow import follow, run_with_question

    source, destinations = shown_as_typed(args.sources), tuple(args.destinations)
    plans = 0
    while True:
        plans += 1
        proposal = engine.propose(request)
        show_proposal(args, proposal)
        agree(args, proposal)
        with follow(args, preview.after_dry_run) as follower:
            try:
                job = engine.start(proposal, argv=[args.verb, *args.words], keep_logs=args.keep_logs)
            except FleetTaken as error:
                if plans == PLANS_MAX:
                    raise
                if not args.quiet and not args.json:
                    print(f"note: {error}; planning again", file=sys.stderr)
                continue
            begun = None if detached is None else partial(detached.leave, job.id, job.folder)
            return run_with_question(follower, job, source, destinations, yes=args.yes, note=note, begun=begun)


def _prune_jobs(engine: Engine, args: Namespace) -> None:
    """Remove jobs of the configured age, and report their number."""
    import time

    from tradewind.cli.jobs import pruned_line

    try:
        pruned = engine.prune(round((time.time() - args.jobs_prune_after) * 1000))
    except TradewindError as error:  # The transfer's own result is not changed by it.
        print(f"warning: old jobs were not removed: {error}", file=sys.stderr)
        return
    if pruned.jobs and not args.quiet:
        print(f"note: {pruned_line(pruned)} (jobs_prune_after)", file=sys.stderr)


def shown_as_typed(sources: Sequence[str]) -> str:
    """Return the sources as `a, b`, or `a, b and 40 more`."""
    if len(sources) <= SOURCES_SHOWN_MAX:
        return ", ".join(sources)
    return f"{', '.join(sources[: SOURCES_SHOWN_MAX - 1])} and {len(sources) - SOURCES_SHOWN_MAX + 1:,} more"


def _unfinished(engine: Engine, args: Namespace) -> str | None:
    """Return a note if an earlier job with this source and destination can be resumed."""
    job = engine.unfinished(args.sources, args.destinations)
    if job is None:
        return None
    return (
        f"job {job.id} with this source and destination is unfinished; resume it with `tradewind jobs resume {job.id}`"
    )


def explain(args: Namespace, options: Options) -> NoReturn:
    """Explain whether and why a key is selected and, for sync, how the destinations compare. Raises UsageError.

    Does not return: the process exits.
    """
    from tradewind.engine.tasks import become_explanation

    become_explanation(args.gateway, args.explain, args.sources, args.destinations, options, quiet=args.quiet)


def request_of(args: Namespace, options: Options) -> Request:
    """Return the request of a transfer's arguments. Raises UsageError for options that exclude each other."""
    from tradewind.engine.proposal import Request
    from tradewind.model.goal import Deadline, MinThroughput

    sites = args.configuration.sites()
    goals = goal_options(args)
    if len(goals) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(goals)}")
    goal = None if args.min_throughput is None else MinThroughput(args.min_throughput)
    kind, usd = args.max_cost or (None, None)
    return Request(
        args.sources,
        args.destinations,
        options,
        args.verb,
        args.topology,
        args.sky,
        args.via,
        goal=goal if args.deadline is None else Deadline(args.deadline),
        ceiling_usd=usd if kind == "usd" else None,
        ceiling_usd_per_gb=usd if kind == "usd_per_gb" else None,
        machines_per_region=args.max_vms,
        replan=args.replan,
        compression_ratio=1.0 if args.compression_ratio is None else args.compression_ratio,
        tier=args.tier,
        routes_max=args.routes,
        agreed=args.yes,
        **({} if sites is None else {"sites": sites, "unasked_usd": _unasked_usd(args, sites)}),
    )


def _unasked_usd(args: Namespace, sites: Sites) -> float | None:
    """Return the most that a fleet of `auto` may cost without a question; None if the user can be asked, or agreed."""
    return None if args.yes or args.dry_run or can_ask() else sites.fleet.confirm_above_usd


def show_proposal(args: Namespace, proposal: Proposal) -> None:
    """Print the decisions that the user did not ask for; in a dry run also the plan."""
    if args.quiet or args.json:
        return
    for note in proposal.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.dry_run and proposal.plan.overlay is not None:
        print(f"plan    {proposal.plan.overlay}", file=sys.stderr)


def agree(args: Namespace, proposal: Proposal) -> None:
    """Ask before spending money without a ceiling. Raises UsageError after a no.

    Where nobody can be asked, rented machines need an agreement beforehand; prices of a topology file do not.
    """
    from tradewind.model.units import format_usd

    if not proposal.needs_confirmation or args.yes:
        return
    if not can_ask():
        if proposal.rents_machines:
            raise UsageError(
                f"this spends {format_usd(proposal.cost_usd)}, and there is no terminal on which to confirm it",
                hint="confirm with -y, or set a ceiling with --max-cost",
            )
        return
    if proposal.plan.overlay is not None:
        confirm(f"{proposal}. Spend {format_usd(proposal.cost_usd)}?")
        return
    price = format_usd(proposal.plan.mean_usd_per_gb)
    confirm(f"This costs {price} per GB sent, without a ceiling (--max-cost). Continue?")
