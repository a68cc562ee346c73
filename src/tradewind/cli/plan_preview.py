"""Print the gain of a plan for `cp`, `sync` and `mv`: complete with --dry-run, otherwise at most two lines."""

from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tradewind.cli.options import GOAL_OPTIONS, goal_options
from tradewind.engine.preview import NoPlan, Preview
from tradewind.model.event import Summary
from tradewind.model.records import dataclass

if TYPE_CHECKING:
    from tradewind.render.plans import TransferPlan

__all__ = ["PreviewLines"]

NO_PROVIDER = "without machines there (docs/guides/fleet.md) this machine moves everything"


@dataclass(frozen=True, slots=True)
class PreviewLines:
    """Prints the plan that a transfer could have on rented machines."""

    args: Namespace
    preview: Preview

    def say_before(self) -> None:
        """Print the regions before a real transfer and, if it has a goal, the plan for it. No effect in a dry run.

        Raises:
            UsageError: there is a goal, but a region is unknown.
            TradewindError: no plan meets the goal. Nothing is moved then.
        """
        preview = self.preview
        if preview.sides is None or self.args.dry_run:
            return
        if not preview.has_goal:
            if preview.known_regions is not None:
                source, destination = preview.known_regions
                self._say(f"from    {source} to {destination}; --dry-run shows the gain of machines in between")
            return
        if self._has_obstacle():
            return
        if self.args.max_cost is not None:
            self._say("note: --max-cost limits only the plan; it does not stop a transfer by this machine alone")
        plan = self._plan(preview.count())
        if plan is not None:
            self._say(f"plan    {plan.overlay}", f"        {NO_PROVIDER}")

    def after_dry_run(self, summary: Summary) -> None:
        """Print the whole plan after the mappings of a dry run, or the reason why there is none."""
        if self.preview.sides is None or summary.progress.bytes_total <= 0 or self._has_obstacle():
            return
        plan = self._plan(summary)
        if plan is None:
            return
        if self.args.json:
            direct = None if plan.direct is None else _figures(plan.direct)
            print(json.dumps({"event": "plan", **plan.to_document(), "direct": direct}))
        else:
            self._say("", *self._lines(plan))

    def _has_obstacle(self) -> bool:
        obstacle = self.preview.obstacle()
        if obstacle is not None:
            self._say_no_plan(obstacle)
        return obstacle is not None

    def _plan(self, counted: Summary) -> TransferPlan | None:
        volume_gb = counted.progress.bytes_total / 1e9
        if volume_gb <= 0:
            return None
        plan = self.preview.plan(volume_gb, counted.progress.objects_total)
        if isinstance(plan, NoPlan):
            self._say_no_plan(plan)
            return None
        return plan

    def _lines(self, plan: TransferPlan) -> Iterator[str]:
        from shutil import get_terminal_size

        from tradewind.render import words

        columns = get_terminal_size((words.COLUMNS, 24)).columns
        yield from words.plan_lines(plan.overlay, columns)
        yield from words.against_direct_lines(plan.overlay, plan.direct)
        yield from ("", f"  {NO_PROVIDER} (without --dry-run)", "", "  other goals")
        yield from (f"    {line}" for line in self._other_goals(plan))

    def _other_goals(self, plan: TransferPlan) -> Iterator[str]:
        """Yield commands with other goals, each with a figure that is likely to be feasible.

        Their gain is not stated, because they have not been solved.
        """
        overlay = plan.overlay
        most = max(overlay.machine_counts.values())
        vms = ("fewer machines", most // 2) if most > 1 and not goal_options(self.args) else ("more machines", 2 * most)
        others = [
            ("for 20% more money", f"--max-cost {math.ceil(overlay.cost.total_usd * 120) / 100:.2f}USD"),
            (
                "at half the rate",
                f"--min-throughput {max(1, math.floor(overlay.throughput_gbps * 500))}Mbit/s",
            ),
            ("in twice the time", f"--deadline {math.ceil(overlay.time_s * 2)}s"),
            (vms[0], f"--max-vms {vms[1]}"),
        ]
        for name, option in others:
            yield f"{name:<20}{self._command(option)}"

    def _command(self, option: str) -> str:
        """Return the command line as typed, with another goal."""
        words, kept = iter(self.args.words), []
        dropped = {"--max-vms"} if option.startswith("--max-vms") else GOAL_OPTIONS
        for word in words:
            if word in dropped:
                next(words, None)
            elif word.partition("=")[0] not in dropped:
                kept.append(word)
        import shlex

        return shlex.join(["tradewind", self.args.verb, *kept]) + f" {option}"

    def _say_no_plan(self, no_plan: NoPlan) -> None:
        """Print why there is no plan; in a dry run with --json as an event in place of the plan."""
        options = " and ".join(f"{option} PROVIDER:REGION" for option in no_plan.unknown)
        because = f"{no_plan.because}; set {options}" if options else no_plan.because
        self._say(f"no plan: {because}")
        if self.args.json and self.args.dry_run:
            print(json.dumps({"event": "plan", "status": "none", "because": because}, ensure_ascii=False))

    def _say(self, *lines: str) -> None:
        if not (self.args.quiet or self.args.json):
            print("\n".join(lines), file=sys.stderr)


def _figures(plan: Any) -> dict[str, Any]:
    return {"throughput_gbps": plan.throughput_gbps, "time_s": plan.time_s, "cost_usd": plan.cost.total_usd}
