"""`python -m benchmarks.early hosts|cloud [--rounds N]`: in turn, a transfer whose machines start while the source is
listed, and the same transfer without this. Each later page of a list takes DELAY_S.

`hosts` are this host behind an SSH server. They keep the program of the first run, which is not counted. `cloud` is the
emulated EC2, whose instances boot here and download the program each time. Prints Markdown. Needs root.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import ExitStack

from benchmarks.measure import load
from benchmarks.places import PLACES, run_benchmark, two_stores
from testbed.faults.http import HttpProxy
from testbed.faults.rules import Delay, Request, Rule
from testbed.servers.process import temporary_folder

#: Objects of 1 kB. A page of a list has 1,000.
OBJECTS = 3500
DELAY_S = 8.0
ROUNDS = 3


def measure(place: str, rounds: int) -> None:
    """Print a table of the times of all runs."""
    with ExitStack() as stack:
        folder = temporary_folder("early")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        at = stack.enter_context(PLACES[place](folder))
        one, other = stack.enter_context(two_stores(at, folder))
        data, copy = one.folder / "data" / "bucket" / "data", other.folder / "data" / "bucket" / "copy"
        for number in range(OBJECTS):
            (data / f"{number:04}").write_bytes(os.urandom(1000))
        proxy = stack.enter_context(HttpProxy(one.endpoint, at.address))
        proxy.add(Rule(Delay(DELAY_S), when=_is_later_page))
        # The run without `-y` is not asked for an agreement, and starts late.
        command, words = at.command(folder / "home", one, other, proxy.endpoint)

        def run(*more: str) -> float:
            shutil.rmtree(copy)
            copy.mkdir()
            began_s = time.monotonic()
            done = command.run(*words, *more, timeout_s=300).expect(0)
            took_s = time.monotonic() - began_s
            assert ("the source is still being listed" in done.stderr) == bool(more), done.stderr
            assert len(list(copy.iterdir())) == OBJECTS
            command.wait_until_alone()
            return took_s

        run()
        print("| machines start while the source is listed | after it |\n|--:|--:|", flush=True)
        for _ in range(rounds):
            print(f"| {run('-y'):.1f} s | {run():.1f} s |", flush=True)
    print(f"\nLoad {load()} at the end.")


def _is_later_page(request: Request) -> bool:
    """Return whether a request is for a later page of a list. Requests for single keys divide the list."""
    is_later = any(request.query.get(name) for name in ("continuation-token", "start-after"))
    return request.method == "GET" and is_later and request.query.get("max-keys") != "1"


if __name__ == "__main__":
    sys.exit(run_benchmark("early", "Measure an early start.", measure, ROUNDS))
