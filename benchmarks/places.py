"""Two places in which machines are rented on this host, for benchmarks of their start: hosts, and the emulated EC2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.clouds.aws import aws_cloud
from testbed.drive import Command
from testbed.servers import InstallError, Server, ServerError, versitygw
from testbed.servers.versitygw import REGION
from testbed.sshd import local_ssh_server
from tradewind.gateway.binary import find_gateway

__all__ = ["PLACES", "Place", "cloud", "hosts", "run_benchmark", "two_stores"]

SECRET = "benchmark-secret"
#: A cost below this needs no agreement.
AGREED_USD = 1000


@dataclass
class Place:
    """Machines in two regions: the regions, an address of this host that they reach, the configuration, and options."""

    regions: tuple[str, str]
    address: str
    lines: list[str]
    words: tuple[str, ...] = ()

    def command(
        self, home: Path, source: Server, destination: Server, source_endpoint: str
    ) -> tuple[Command, list[str]]:
        """Return a user's command, and the words of a copy from a bucket to one in the other region."""
        command = Command(home)
        command.environment |= {"AWS_ACCESS_KEY_ID": source.access_key, "AWS_SECRET_ACCESS_KEY": SECRET}
        command.environment["AWS_REGION"] = REGION
        command.configure(*self.lines)
        words = ["cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--via", "fleet", "--share-keys"]
        words += ["--src-region", self.regions[0], "--dst-region", self.regions[1], "--max-vms", "1"]
        words += ["--src-endpoint", source_endpoint, "--dst-endpoint", destination.endpoint, *self.words]
        return command, words


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


@contextmanager
def two_stores(place: Place, folder: Path) -> Iterator[tuple[Server, Server]]:
    """Yield a store for one region, with an empty folder `data`, and one for the other, with an empty folder `copy`."""
    with (
        versitygw(False, data_parent=folder, address=place.address, secret=SECRET) as one,
        versitygw(False, data_parent=folder, address=place.address, secret=SECRET) as other,
    ):
        (one.folder / "data" / "bucket" / "data").mkdir(parents=True)
        (other.folder / "data" / "bucket" / "copy").mkdir(parents=True)
        yield one, other


def run_benchmark(name: str, description: str, measure: Callable[[str, int], None], rounds: int) -> int:
    """Measure one place, which the command line names, in a number of rounds. Return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"pairs of runs (default: {rounds})")
    arguments = parser.parse_args()
    try:
        measure(arguments.place, arguments.rounds)
    except (InstallError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
