"""`python -m benchmarks.service scheduler [--jobs N] [--seed N]`, or `load`: measure the service and print Markdown."""

from __future__ import annotations

import argparse

from benchmarks.service.load import measure_load
from benchmarks.service.scheduler import JOBS, measure_scheduler


def main() -> int:
    """Run the given suite."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description="Measure the transfer service.")
    parser.add_argument("suite", choices=["scheduler", "load"], help="suite to run")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"number of jobs (default: {JOBS})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random scenario (default: 0)")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    if arguments.suite == "load":
        print(measure_load())
        return 0
    print(measure_scheduler(arguments.jobs, arguments.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
