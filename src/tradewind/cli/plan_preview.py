"""Report of `cp`, `sync` and `mv` about the plan between two regions: complete with --dry-run, otherwise two lines at
most.

Planning loads the solver and needs the volume, so it happens only if both regions are known and --dry-run or a goal
requires it. Otherwise only facts are reported that need no request.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tradewind.engine.client import Client
from tradewind.engine.regions import Side, find_regions, known_region, named_region
from tradewind.engine.request import Options
from tradewind.errors import UsageError
from tradewind.model.event import Summary
from tradewind.model.store import Access
from tradewind.model.url import parse_url

if TYPE_CHECKING:
    from tradewind.planner.plan import Transfer
    from tradewind.render.plans import TransferPlan

__all__ = ["Preview", "goal_of", "goal_options", "preview_of"]

NO_PROVIDER = "Tradewind does not rent cloud machines yet: this machine moves everything"
GOAL_OPTIONS = {"--max-cost", "--min-throughput", "--deadline"}
ANY_VOLUME_GB = 1.0
"""Volume for the check whether a plan is possible at all, before the real volume is known."""
CLOUDS = {"s3", "gs", "az", "r2"}


@dataclass(frozen=True, slots=True)
class Preview:
    """The two sides of a transfer, as far as its plan needs them; without sides nothing is reported."""

    args: Namespace
    options: Options
    client: Client
    sides: tuple[Side, Side] | None

    def say_before(self) -> None:
        """Before a transfer that is no dry run: where it goes and, with a goal, what the plan for it would be.

        Raises:
            UsageError: a goal, and a region that is not known.
            TradewindError: no plan meets the goal; nothing is moved then.
        """
        if self.sides is None or self.args.dry_run:
            return
        if not goal_options(self.args):
            source, destination = (side.region for side in self.sides)
            if source and destination and source != destination:
                self._say(f"from    {source} to {destination}; --dry-run shows the gain of machines in between")
            return
        if not self._can_be_planned(strictly=True):
            return
        if self.args.max_cost is not None:
            self._say("note: --max-cost limits the plan only; a transfer by this machine alone is not stopped by it")
        counted = self._counted().progress
        volume_gb = counted.bytes_total / 1e9
        plan = self._plan(volume_gb, counted.objects_total) if volume_gb > 0 else None
        if plan is not None:
            self._say(f"plan    {plan.overlay}", f"        {NO_PROVIDER}")

    def after_dry_run(self, summary: Summary) -> None:
        """After the mappings of a dry run: the whole plan, or in one line why there is none."""
        if self.sides is None:
            return
        volume_gb = summary.progress.bytes_total / 1e9
        if volume_gb <= 0 or not self._can_be_planned(strictly=bool(goal_options(self.args))):
            return
        plan = self._plan(volume_gb, summary.progress.objects_total)
        if plan is None:
            return
        if self.args.json:
            direct = None if plan.direct is None else _figures(plan.direct)
            print(json.dumps({"event": "plan", **plan.to_document(), "direct": direct}))
        else:
            self._say("", *self._lines(plan))

    def _can_be_planned(self, *, strictly: bool) -> bool:
        """Return whether both regions are known and differ; says why not. Raises UsageError if a goal depends on it."""
        assert self.sides is not None
        named = zip(("--src-region", "--dst-region"), self.sides, strict=True)
        missing = {name: side.because for name, side in named if side.region is None}
        if missing:
            name, because = next(iter(missing.items()))
            if strictly:
                hint = f"set the region, e.g. {name} aws:us-east-1; or use --topology"
                raise UsageError(f"a goal needs the regions: {because}", hint=hint)
            options = " and ".join(f"{option} PROVIDER:REGION" for option in missing)
            self._say_no_plan(f"{because}; set {options}")
            return False
        source, destination = self.sides
        if source.region == destination.region:
            self._say_no_plan(f"source and destination are both in {source.region}")
            return False
        return True

    def _plan(self, volume_gb: float, objects: int) -> TransferPlan | None:
        """The plan; None, and said why, where waiting for machines would take longer than the transfer."""
        from time import perf_counter

        from tradewind.engine.planning import goal_of_direct, outruns_boot, planned
        from tradewind.model.units import format_duration, format_volume
        from tradewind.render.words import SHORTEST_S

        started_s = perf_counter()
        transfer = self._prepared(volume_gb, objects)
        alone = outruns_boot(transfer)
        if alone is not None:
            self._say_no_plan(
                f"machines take {format_duration(alone.boot_s)} to start, and {format_volume(volume_gb)} "
                f"only {format_duration(max(alone.transfer_s, SHORTEST_S))} to move"
            )
            return None
        return planned(transfer, goal_of(self.args, volume_gb) or goal_of_direct(transfer), started_s)

    def _prepared(self, volume_gb: float, objects: int | None = None) -> Transfer:
        """The transfer between the two regions, which are known. Raises UsageError if the catalog does not have one."""
        from tradewind.catalog.load import catalog_folder
        from tradewind.engine.planning import MACHINES_PER_REGION, prepared

        assert self.sides is not None
        return prepared(
            str(self.sides[0].region),
            str(self.sides[1].region),
            volume_gb=volume_gb,
            max_vms=self.args.max_vms or MACHINES_PER_REGION,
            objects=objects or None,
            catalog=catalog_folder(self.args.state_dir),
        )

    def refuse_regions(self) -> None:
        """Before anything is listed: raises UsageError if both regions are known and there is no planning for them."""
        regions = {side.region for side in self.sides or ()}
        if len(regions) == 2 and None not in regions:
            self._prepared(ANY_VOLUME_GB)

    def _counted(self) -> Summary:
        """Counts what there is to move, by the same rules, since what a goal needs depends on it."""
        job = self.client.start(
            self.args.sources, self.args.destinations, replace(self.options, dry_run=True), verb=self.args.verb
        )
        return job.wait().summary

    def _lines(self, plan: TransferPlan) -> Iterator[str]:
        from shutil import get_terminal_size

        from tradewind.render import words

        columns = get_terminal_size((words.COLUMNS, 24)).columns
        yield from words.plan_lines(plan.overlay, columns)
        yield from words.against_direct_lines(plan.overlay, plan.direct)
        yield from ("", f"  {NO_PROVIDER} (without --dry-run)", "", "  other goals")
        yield from (f"    {line}" for line in self._other_goals(plan))

    def _other_goals(self, plan: TransferPlan) -> Iterator[str]:
        """Commands that ask for something else, each with a figure that can be had.

        What they would gain is not promised: it has not been solved for.
        """
        overlay = plan.overlay
        most = max(overlay.machine_counts.values())
        vms = ("fewer machines", most // 2) if most > 1 and not goal_options(self.args) else ("more machines", 2 * most)
        wishes = [
            ("for 20% more money", f"--max-cost {math.ceil(overlay.cost.total_usd * 120) / 100:.2f}USD"),
            (
                "at half the rate",
                f"--min-throughput {max(1, math.floor(overlay.throughput_gbps * 500))}Mbit/s",
            ),
            ("in twice the time", f"--deadline {math.ceil(overlay.time_s * 2)}s"),
            (vms[0], f"--max-vms {vms[1]}"),
        ]
        for name, wish in wishes:
            yield f"{name:<20}{self._command(wish)}"

    def _command(self, wish: str) -> str:
        """The command line as typed, with another goal."""
        words, kept = iter(self.args.words), []
        dropped = {"--max-vms"} if wish.startswith("--max-vms") else GOAL_OPTIONS
        for word in words:
            if word in dropped:
                next(words, None)
            elif word.partition("=")[0] not in dropped:
                kept.append(word)
        return shlex.join(["tradewind", self.args.verb, *kept]) + f" {wish}"

    def _say_no_plan(self, because: str) -> None:
        """Why there is no plan; of a dry run in JSON, too, where a plan would be."""
        self._say(f"no plan: {because}")
        if self.args.json and self.args.dry_run:
            print(json.dumps({"event": "plan", "status": "none", "because": because}, ensure_ascii=False))

    def _say(self, *lines: str) -> None:
        if not (self.args.quiet or self.args.json):
            print("\n".join(lines), file=sys.stderr)


def preview_of(args: Namespace, options: Options, client: Client) -> Preview:
    """What can be said of a transfer. Asks stores where they are only for --dry-run and for a goal.

    Raises:
        UsageError: two goals, a goal where there is nothing to plan, or regions that cannot be planned for.
    """
    goals = goal_options(args)
    if args.via != "local":
        return Preview(args, options, client, None)
    if args.topology is not None:
        others = [name for name in (*goals, *(["--max-vms"] if args.max_vms else [])) if name != "--max-cost"]
        if others:
            raise UsageError(f"{others[0]} and --topology cannot be combined", hint="leave one of them out")
        return Preview(args, options, client, None)
    if len(goals) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(goals)}")
    places = [parse_url(text, cwd=os.getcwd()) for text in (args.source, *args.destinations)]
    if len(places) != 2:
        if goals:
            raise UsageError(f"{goals[0]} plans for one destination", hint="give one DST, or --topology")
        return Preview(args, options, client, None)
    reached = options.destination if isinstance(options.destination, Access) else options.destination[0]
    pairs = list(zip(places, (options.source, reached), strict=True))
    if not goals and any(place.kind not in CLOUDS and not named_region(access.region) for place, access in pairs):
        said = (known_region(*pairs[0]), known_region(*pairs[1]))
        one_is_known = any(side.region for side in said)
        return Preview(args, options, client, said if args.dry_run and one_is_known else None)
    if args.dry_run or goals:
        source, destination = find_regions(pairs, client.gateway)
    else:
        source, destination = (known_region(*pair) for pair in pairs)
    preview = Preview(args, options, client, (source, destination))
    if args.dry_run or goals:
        preview.refuse_regions()
    return preview


def goal_options(args: Namespace) -> list[str]:
    """The options that were given and name a goal; more than one contradict each other."""
    given = {"--max-cost": args.max_cost, "--min-throughput": args.min_throughput, "--deadline": args.deadline}
    return [name for name, value in given.items() if value is not None]


def goal_of(args: Namespace, volume_gb: float) -> Any:
    """The goal that was asked for; None if none was."""
    from tradewind.model.goal import Deadline, MaxCost, MinThroughput

    if args.max_cost is not None:
        kind, usd = args.max_cost
        return MaxCost(usd * volume_gb if kind == "usd_per_gb" else usd)
    if args.min_throughput is not None:
        return MinThroughput(args.min_throughput)
    return Deadline(args.deadline) if args.deadline is not None else None


def _figures(plan: Any) -> dict[str, Any]:
    return {"throughput_gbps": plan.throughput_gbps, "time_s": plan.time_s, "cost_usd": plan.cost.total_usd}
