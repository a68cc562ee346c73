"""`python -m benchmarks.early hosts|cloud [--rounds N]`: in turn, a transfer whose machines start while the source is
listed, and the same transfer without this. Each later page of a list takes DELAY_S.

`hosts` are this host behind an SSH server. They keep the program of the first run, which is not counted. `cloud` is the
emulated EC2, whose instances boot here and download the program each time. Prints Markdown. Needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import load
from testbed.clouds.aws import aws_cloud
from testbed.drive import Command
from testbed.faults.http import HttpProxy
from testbed.faults.rules import Delay, Request, Rule
from testbed.servers import InstallError, ServerError, versitygw
from testbed.servers.process import temporary_folder
from testbed.servers.versitygw import REGION
from testbed.sshd import local_ssh_server
from tradewind.gateway.binary import find_gateway

#: Objects of 1 kB. A page of a list has 1,000.
OBJECTS = 3500
DELAY_S = 8.0
ROUNDS = 3
SECRET = "benchmark-secret"
#: A cost below this needs no agreement: then the transfer without `-y` is not asked for one, and starts late.
AGREED_USD = 1000


@dataclass
class Place:
    """Machines in two regions: the regions, an address of this host that they reach, the configuration, and options."""

    regions: tuple[str, str]
    address: str
    lines: list[str]
    words: tuple[str, ...] = ()


@contextmanager
def hosts(folder: Path) -> Iterator[Place]:
    """Yield two hosts which are this one."""
    with local_ssh_server(folder / "ssh") as ssh:
        with ssh.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {site}\n  HostName 127.0.0.1\n" for site in "ab")
        lines = ["[ssh]", f'config = "{ssh.config}"']
        for site in "ab":
            lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
            lines += ["usd_per_hour = 1", f'folder = "{folder}/on {site}"']
        yield Place(("site:a", "site:b"), "127.0.0.1", ["[fleet]", f"confirm_above_usd = {AGREED_USD}", *lines])


@contextmanager
def cloud(folder: Path) -> Iterator[Place]:
    """Yield the emulated EC2."""
    with aws_cloud(folder / "cloud", find_gateway()) as made:
        assert made.boots is not None
        document = made.document()
        lines = ["[aws]", f'endpoint = "{made.endpoint}"', 'regions = ["us-east-1", "eu-west-1"]', "[fleet]"]
        lines += [f'program_url = "{document["programs"][0]["url"]}"', f'home_cidr = "{document["home_cidr"]}"']
        lines += [f"confirm_above_usd = {AGREED_USD}"]
        # At lower rates, little data needs cheaper types of machines than much data.
        goal = "--min-throughput", "2Gbit/s"
        yield Place(("aws:us-east-1", "aws:eu-west-1"), made.boots.address, lines, goal)


PLACES = {"hosts": hosts, "cloud": cloud}


def measure(place: str, rounds: int) -> None:
    """Print a table of the times of all runs."""
    with ExitStack() as stack:
        folder = temporary_folder("early")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        at = stack.enter_context(PLACES[place](folder))
        one, other = (
            stack.enter_context(versitygw(False, data_parent=folder, address=at.address, secret=SECRET))
            for _ in range(2)
        )
        data, copy = one.folder / "data" / "bucket" / "data", other.folder / "data" / "bucket" / "copy"
        data.mkdir(parents=True)
        copy.mkdir(parents=True)
        for number in range(OBJECTS):
            (data / f"{number:04}").write_bytes(os.urandom(1000))
        proxy = stack.enter_context(HttpProxy(one.endpoint, at.address))
        proxy.add(Rule(Delay(DELAY_S), when=_is_later_page))
        command = Command(folder / "home")
        command.environment |= {"AWS_ACCESS_KEY_ID": one.access_key, "AWS_SECRET_ACCESS_KEY": SECRET}
        command.environment["AWS_REGION"] = REGION
        command.configure(*at.lines)
        words = ["cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet", "--share-keys"]
        words += ["--src-region", at.regions[0], "--dst-region", at.regions[1], "--max-vms", "1"]
        words += ["--src-endpoint", proxy.endpoint, "--dst-endpoint", other.endpoint, *at.words]

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


def main() -> int:
    """Measure one place."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.early", description="Measure an early start.")
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"pairs of runs (default: {ROUNDS})")
    arguments = parser.parse_args()
    try:
        measure(arguments.place, arguments.rounds)
    except (InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
