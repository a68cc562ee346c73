"""`python -m benchmarks.service scheduler [--jobs N] [--seed N]` measures the scheduler, and prints Markdown.

It ends with 1 if a job did not end, or if the shares of the tenants differ from their weights by more than 5%.
`load [--queued N] [--running N] [--streams N]` measures a server. `soak [--hours H] [--minutes M] [--seed N]` runs
three replicas through a day of load and faults in minutes, and ends with 1 if an invariant does not hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.service.load import QUEUED, RUNNING, STREAMS, Load, measure_load
from benchmarks.service.scheduler import JOBS, measure_scheduler


def main() -> int:
    """Run the given suite."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description="Measure the transfer service.")
    parser.add_argument("suite", choices=["scheduler", "load", "soak"], help="suite to run")
    parser.add_argument("--jobs", type=int, metavar="N", help=f"number of jobs (default: {JOBS}; soak: 30 a minute)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random scenario (default: 0)")
    parser.add_argument("--queued", type=int, default=QUEUED, metavar="N", help=f"waiting jobs (default: {QUEUED})")
    parser.add_argument("--running", type=int, default=RUNNING, metavar="N", help=f"running jobs (default: {RUNNING})")
    parser.add_argument("--streams", type=int, default=STREAMS, metavar="N", help=f"streams (default: {STREAMS})")
    parser.add_argument("--hours", type=float, default=24.0, metavar="H", help="simulated hours (default: 24)")
    parser.add_argument("--minutes", type=float, default=15.0, metavar="M", help="minutes of the soak (default: 15)")
    parser.add_argument("--faults", type=int, metavar="N", help="number of faults (default: one every 4 s)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/benchmarks"), metavar="DIR", help="folder of the report"
    )
    parser.add_argument("--lease", type=int, default=3, metavar="S", help="soak: lease of the servers (default: 3 s)")
    parser.add_argument(
        "--machines", type=float, metavar="SHARE", help="soak: share of the jobs that rent machines (default: 0.13)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="soak: keep logs and state of the servers here")
    arguments = parser.parse_args()
    if (
        min(JOBS if arguments.jobs is None else arguments.jobs, arguments.running) < 1
        or min(arguments.queued, arguments.streams) < 0
    ):
        parser.error("--jobs and --running must be at least 1, the others at least 0")
    if not 0 <= (arguments.machines or 0) <= 1:
        parser.error("--machines must be between 0 and 1")
    if arguments.suite == "load":
        print(measure_load(Load(arguments.queued, arguments.running, arguments.streams)))
        return 0
    if arguments.suite == "soak":
        return _soak(arguments)
    text, holds = measure_scheduler(JOBS if arguments.jobs is None else arguments.jobs, arguments.seed)
    print(text)
    return 0 if holds else 1


def _soak(arguments: argparse.Namespace) -> int:
    from benchmarks.service.soak.run import Soak, measure_soak
    from testbed.servers import InstallError, ServerError

    size = arguments.hours, arguments.minutes, arguments.seed, arguments.jobs, arguments.faults
    soak = Soak(*size, arguments.keep, arguments.lease, arguments.machines)
    try:
        text, holds = measure_soak(soak, arguments.out)
    except (InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    print(text)
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
