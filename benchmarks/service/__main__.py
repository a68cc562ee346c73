"""`python -m benchmarks.service scheduler [--jobs N] [--seed N]` measures the scheduler, and prints Markdown.

`load [--queued N] [--running N] [--streams N]` measures a server.
"""

from __future__ import annotations

import argparse

from benchmarks.service.load import QUEUED, RUNNING, STREAMS, Load, measure_load
from benchmarks.service.scheduler import JOBS, measure_scheduler


def main() -> int:
    """Run the given suite."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description="Measure the transfer service.")
    parser.add_argument("suite", choices=["scheduler", "load"], help="suite to run")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"number of jobs (default: {JOBS})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random scenario (default: 0)")
    parser.add_argument("--queued", type=int, default=QUEUED, metavar="N", help=f"waiting jobs (default: {QUEUED})")
    parser.add_argument("--running", type=int, default=RUNNING, metavar="N", help=f"running jobs (default: {RUNNING})")
    parser.add_argument("--streams", type=int, default=STREAMS, metavar="N", help=f"streams (default: {STREAMS})")
    arguments = parser.parse_args()
    if min(arguments.jobs, arguments.running) < 1 or min(arguments.queued, arguments.streams) < 0:
        parser.error("--jobs and --running must be at least 1, the others at least 0")
    if arguments.suite == "load":
        print(measure_load(Load(arguments.queued, arguments.running, arguments.streams)))
        return 0
    print(measure_scheduler(arguments.jobs, arguments.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
