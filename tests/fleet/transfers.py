"""A transfer between two stores through machines of a fleet, by the real command."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from testbed.drive import Command, Finished, Running
from testbed.servers import Server, versitygw
from testbed.servers.versitygw import REGION
from tests.sky.world import differences, write_files

__all__ = ["ENDS_S", "SECRET", "VOLUME_BYTES", "Transfer", "files_in", "holding", "ready", "two_stores"]

SECRET = "testbed-secret"
"""Secret key of both stores."""
VOLUME_BYTES = 40_000_000
#: Machines on this host are joined by a network as fast as the host: the transfer must not end before one is replaced.
RATE = "3MB/s"
DIRECT_GBPS, RELAYED_GBPS = 0.008, 0.024
"""Rates of the links in the user's catalog. Only over the relay the transfer is as fast as RATE allows."""
ENDS_S = 60.0
"""Time in which everything that a command has started is gone."""


@contextmanager
def two_stores(address: str, folder: Path, tls: bool = False) -> Iterator[tuple[Server, Server]]:
    """Run an object store on each side, at an address of this host that the machines reach."""
    with (
        versitygw(tls, data_parent=folder, address=address, secret=SECRET) as one,
        versitygw(tls, data_parent=folder, address=address, secret=SECRET) as other,
    ):
        for server in (one, other):
            (server.folder / "data" / "bucket").mkdir()
        yield one, other


def files_in(folder: Path) -> Iterator[Path]:
    """Return all files in a folder and its folders."""
    return (path for path in folder.rglob("*") if path.is_file())


def holding(text: str, files: Iterable[Path]) -> list[str]:
    """Return those of the files that have the text. One that has vanished does not count."""
    found = []
    for path in files:
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(str(path))
    return found


class Transfer:
    """The command on this host, with a store in each of two regions. Over the third region it is the fastest."""

    def __init__(self, folder: Path, stores: Sequence[Server], regions: tuple[str, str, str], *words: str) -> None:
        self.folder, self.regions = folder, regions
        source, relay, destination = regions
        self.links = (
            (source, destination, DIRECT_GBPS),
            (source, relay, RELAYED_GBPS),
            (relay, destination, RELAYED_GBPS),
        )
        self.source, self.copy = (
            server.folder / "data" / "bucket" / name for server, name in zip(stores, ("data", "copy"), strict=True)
        )
        self.command = Command(folder / "home")
        keys = {"AWS_ACCESS_KEY_ID": stores[0].access_key, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
        self.command.environment |= keys
        self.words = [
            *("cp", "-r", "s3://bucket/data/", "s3://bucket/copy/", "--limit-rate", RATE, "--max-cost", "5USD"),
            *("--src-region", source, "--dst-region", destination, "--share-keys"),
            *("--src-endpoint", stores[0].endpoint, "--dst-endpoint", stores[1].endpoint),
            *words,
        ]
        for option, server in zip(("--src-ca-bundle", "--dst-ca-bundle"), stores, strict=True):
            self.words += [] if server.ca_file is None else [option, str(server.ca_file)]

    def start(self) -> Running:
        """Start the transfer through machines, and return when a part of it has arrived."""
        running = self.command.start(*self.words, "--via", "fleet")
        running.wait_for_bytes(VOLUME_BYTES // 8)
        return running

    def check_listed(self, *regions: str) -> None:
        """Check that the machines of the running command are listed, each with its cost."""
        listed = self.command.run("fleet", "list", "--everywhere").expect(0).stdout.splitlines()
        assert {line.split()[1] for line in listed} == set(regions)
        assert all(re.search(r", in use, .* old, \$0\.\d*[1-9]", line) for line in listed), listed

    def finish_replaced(self, running: Running) -> Finished:
        """Wait until another machine takes the place of one that is gone, and then for the end."""
        running.wait_for(lambda event: "takes its place" in event.get("message", ""))
        return running.finish()

    def check_has_no_key(self) -> None:
        """Check that nothing in the command's state folder, such as journals and logs, has the stores' secret key."""
        kept = list(files_in(self.command.state))
        assert kept and holding(SECRET, kept) == []

    def check(self, done: Finished) -> None:
        """Check that the transfer succeeded, is described, and that nothing that it rented is left."""
        assert done.code == 0, done.stderr
        assert differences(self.source, self.copy) == []
        shown = self.command.run("jobs", "show", str(self.command.jobs()[0]["id"])).expect(0)
        assert "first byte" in shown.stdout and "proven" in shown.stdout, shown.stdout
        self.check_nothing_is_left()

    def check_nothing_is_left(self) -> None:
        """Check that providers have nothing any more, by what the command says."""
        assert self.command.run("fleet", "sweep").expect(0).stdout.splitlines()[-1] == "nothing is left"

    def sweep_after_a_kill(self, running: Running) -> str:
        """Kill the command, and sweep its machines from an empty state folder. Return the receipt."""
        running.signal(signal.SIGKILL)
        running.finish()
        self.command.environment["TRADEWIND_STATE_DIR"] = str(self.folder / "another state folder")
        swept = self.command.run("fleet", "sweep").expect(0)
        del self.command.environment["TRADEWIND_STATE_DIR"]
        assert f"ran  {self.regions[2]}" in swept.stdout and " and cost $" in swept.stdout
        assert swept.stdout.endswith("nothing is left\n")
        return swept.stdout


AnyTransfer = TypeVar("AnyTransfer", bound=Transfer)


@contextmanager
def ready(transfer: AnyTransfer) -> Iterator[AnyTransfer]:
    """Yield a transfer whose files and links are there. In the end none of its processes may live."""
    write_files(transfer.source, VOLUME_BYTES)
    rows = [f"{src},{dst},{gbps}\n" for src, dst, gbps in transfer.links]
    links = transfer.folder / "links.csv"
    links.write_text("src,dst,gbps\n" + "".join(rows), encoding="utf-8")
    transfer.command.run("catalog", "import", links).expect(0)
    yield transfer
    transfer.command.wait_until_alone()
