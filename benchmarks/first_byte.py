"""`python -m benchmarks.first_byte hosts|kubernetes|cloud|gcp|azure [--rounds N]`: the time from a command to its first
object at the destination.

In turn, cold and warm: with machines that are rented for the transfer, and with those of a warm fleet. `hosts` are this
host behind an SSH server; they keep the program of the first run, which is not counted. `cloud` is the emulated EC2,
`gcp` and `azure` are the stand-ins of these clouds; their machines boot here and download the program each time.
`kubernetes` are two clusters on this host. Prints Markdown. Needs root.
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

        def first_byte_s() -> tuple[float, float, str]:
            """Return the seconds until the first object was there, and until the command ended, and how the slowest
            machine started.
            """
            shutil.rmtree(copy)
            copy.mkdir()
            began_s = time.monotonic()
            running = command.start(*words, "-y")
            while not any(copy.iterdir()) and running.process.poll() is None:
                time.sleep(LOOK_S)
            first_s = time.monotonic() - began_s
            done = running.finish()
            took_s = time.monotonic() - began_s
            assert done.code == 0, done.stderr
            # A warm fleet starts none.
            starts: list[dict[str, float]] = [one["phases_s"] for one in done.summary.get("machines", ())]
            slowest = max(starts, key=lambda phases_s: max(phases_s.values()), default={})
            return first_s, took_s, ", ".join(f"{name} {after_s:.1f} s" for name, after_s in slowest.items())

        def warm_s() -> tuple[float, float, str]:
            """Return the same on a fleet that was started before."""
            up = command.run("fleet", "up", *at.regions, "--json", "-y").expect(0)
            try:
                return first_byte_s()
            finally:
                command.run("fleet", "down", json.loads(up.stdout)["id"]).expect(0)

        first_byte_s()
        print("| cold: first object | whole command | its slowest machine, after its order ", end="")
        print("| warm: first object | whole command |\n|--:|--:|---|--:|--:|", flush=True)
        for _ in range(rounds):
            (cold_s, cold_whole_s, start), (warm_first_s, warm_whole_s, _) = first_byte_s(), warm_s()
            cells = f"{cold_s:.1f} s", f"{cold_whole_s:.1f} s", start, f"{warm_first_s:.1f} s", f"{warm_whole_s:.1f} s"
            print(f"| {' | '.join(cells)} |", flush=True)
        command.wait_until_alone()
    print(f"\n{OBJECTS} objects of {OBJECT_BYTES // 1_000_000} MB. Load {load()} at the end.")


if __name__ == "__main__":
    sys.exit(run_benchmark("first_byte", "Measure cold and warm starts.", measure, ROUNDS))
