"""`python -m benchmarks.first_byte hosts|cloud [--rounds N]`: the time from a command to its first object at the
destination.

In turn, cold and warm: with machines that are rented for the transfer, and with those of a warm fleet. `hosts` are this
host behind an SSH server; they keep the program of the first run, which is not counted. `cloud` is the emulated EC2,
whose instances boot here and download the program each time. Prints Markdown. Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import ExitStack

from benchmarks.measure import load
from benchmarks.places import PLACES, run_benchmark, two_stores
from testbed.servers.process import temporary_folder

OBJECTS, OBJECT_BYTES = 20, 1_000_000
LOOK_S = 0.01
ROUNDS = 5


def measure(place: str, rounds: int) -> None:
    """Print a table of the times of all runs."""
    with ExitStack() as stack:
        folder = temporary_folder("first-byte")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        at = stack.enter_context(PLACES[place](folder))
        one, other = stack.enter_context(two_stores(at, folder))
        copy = other.folder / "data" / "bucket" / "copy"
        for number in range(OBJECTS):
            (one.folder / "data" / "bucket" / "data" / f"{number:02}").write_bytes(os.urandom(OBJECT_BYTES))
        command, words = at.command(folder / "home", one, other, one.endpoint)

        def first_byte_s() -> tuple[float, float]:
            """Return the seconds until the first object was there, and until the command ended."""
            shutil.rmtree(copy)
            copy.mkdir()
            began_s = time.monotonic()
            running = command.start(*words, "-y")
            while not any(copy.iterdir()) and running.process.poll() is None:
                time.sleep(LOOK_S)
            first_s = time.monotonic() - began_s
            assert running.finish().code == 0
            return first_s, time.monotonic() - began_s

        def warm_s() -> tuple[float, float]:
            """Return the same on a fleet that was started before."""
            up = command.run("fleet", "up", *at.regions, "--json", "-y").expect(0)
            try:
                return first_byte_s()
            finally:
                command.run("fleet", "down", json.loads(up.stdout)["id"]).expect(0)

        first_byte_s()
        print(
            "| cold: first object | whole command | warm: first object | whole command |\n|--:|--:|--:|--:|", flush=True
        )
        for _ in range(rounds):
            cells = (*first_byte_s(), *warm_s())
            print("| " + " | ".join(f"{seconds:.1f} s" for seconds in cells) + " |", flush=True)
        command.wait_until_alone()
    print(f"\n{OBJECTS} objects of {OBJECT_BYTES // 1_000_000} MB. Load {load()} at the end.")


if __name__ == "__main__":
    sys.exit(run_benchmark("first_byte", "Measure cold and warm starts.", measure, ROUNDS))
