"""The report of a soak: a document for programs, and a page for people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from benchmarks.service.soak.checks import Check, Checks
from benchmarks.service.soak.clients import Clients
from benchmarks.service.soak.faults import FaultRunner
from benchmarks.service.soak.watch import Watch
from benchmarks.service.soak.world import SoakWorld
from tradewind.model.document import to_document
from tradewind.model.records import dataclass

if TYPE_CHECKING:
    from benchmarks.service.soak.run import Soak

__all__ = ["SoakReport", "markdown"]

SHOWN_MAX = 20


@dataclass(frozen=True)
class SoakReport:
    """Figures, faults and invariants of one soak. Times are seconds."""

    date: str
    hours: float
    minutes: float
    seed: int
    figures: list[tuple[str, str]]
    faults: dict[str, int]
    states: dict[str, int]
    failures: list[tuple[str, str]]
    checks: list[Check]

    @staticmethod
    def of(
        soak: Soak,
        world: SoakWorld,
        clients: Clients,
        watch: Watch,
        runner: FaultRunner,
        checks: Checks,
        found: Sequence[Check],
        load_before: float,
    ) -> SoakReport:
        """Return the report of what was seen."""
        sent = list(clients.sent.values())
        growth = ", ".join(
            f"{one.work_rss_bytes >> 20} → {one.rest_rss_bytes >> 20} MiB and {one.work_files} → {one.rest_files} files"
            for one in checks.growth().values()
        )
        figures = [
            ("submissions", f"{len(sent)}"),
            ("accepted as jobs", f"{sum(one.job is not None for one in sent)}"),
            ("refused because the budget had no room (402)", f"{sum(one.status == 402 for one in sent)}"),
            ("refused because the source could not be counted (409)", f"{sum(one.status == 409 for one in sent)}"),
            ("requests without an answer, sent again", f"{clients.counts['answers lost']}"),
            ("answers 503 or 429, sent again", f"{clients.counts['answers 503'] + clients.counts['answers 429']}"),
            ("jobs at the end", ", ".join(f"{count} {state}" for state, count in sorted(checks.states.items()))),
            ("jobs paused, resumed or cancelled by users", f"{sum(bool(one.changed) for one in sent)}"),
            ("faults, lease of the servers", f"{runner.done.total()}, {soak.lease_s} s"),
            ("starts of replicas", f"{sum(one.starts for one in world.replicas)}"),
            (
                "ends of replicas",
                ", ".join(f"{count} by {how}" for how, count in sorted(world.exits.items())) or "none",
            ),
            ("webhook requests, refused on purpose", f"{world.receiver.requests}, {world.receiver.refused}"),
            ("events that arrived more than once", f"{sum(count > 1 for count in world.receiver.events.values())}"),
            ("most jobs active, most gateways seen at once", f"{watch.active_max}, {watch.gateways_max}"),
            (
                "machines seen, seconds that they were seen → that were charged",
                f"{len(watch.machines)}, {checks.machine_s[1]:.0f} → {checks.machine_s[0]:.0f} s",
            ),
            ("time until quiet after the last fault", f"{checks.quiet_s:.0f} s"),
            ("replicas that ran throughout, at most in the first half → at rest at the end", growth or "none"),
            ("load of the host, before and after", f"{load_before:.1f}, {os.getloadavg()[0]:.1f}"),
        ]
        return SoakReport(
            datetime.now(timezone.utc).strftime("%Y-%m-%d"),
            soak.hours,
            soak.minutes,
            soak.seed,
            figures,
            dict(sorted(runner.done.items())),
            dict(checks.states),
            checks.failed,
            list(found),
        )

    def document(self) -> Any:
        """Return the report for `json.dumps`."""
        return to_document(self)


def markdown(report: SoakReport) -> str:
    """Return the tables of a report, and the violations if there are any."""
    lines = ["| figure | value |", "|---|---:|", *(f"| {name} | {value} |" for name, value in report.figures), ""]
    lines += [
        "| fault | times |",
        "|---|---:|",
        *(f"| {name} | {count} |" for name, count in report.faults.items()),
        "",
    ]
    lines += ["| invariant | looked at | violations |", "|---|---:|---:|"]
    lines += [f"| {one.name} | {one.looked_at:,} | {len(one.violations)} |" for one in report.checks]
    for one in report.checks:
        if one.violations:
            lines += ["", f"{one.name}:", "", *(f"- {each}" for each in one.violations[:SHOWN_MAX])]
    if report.failures:
        lines += ["", "Jobs that failed, and were resumed afterwards:", ""]
        lines += [f"- {job}: {error}" for job, error in report.failures[:SHOWN_MAX]]
    return "\n".join(lines)
