"""``local``: one machine, one S3 server, one client; compared with the tools of `benchmarks.peers`.

Each cell moves the same bytes with each tool in turn (A B C D, A B C D, …) and reports the median. All data is in
memory (/dev/shm), so that no disk is measured. Each run starts with an empty destination.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.clients import Clients, Commands, at_once
from benchmarks.measure import Cost, Spread, run
from benchmarks.peers import Skipped, store_tools
from benchmarks.tables import Cell, Entry
from testbed.s3 import S3
from testbed.servers import Server, versitygw
from testbed.trees import MIB

DATA_ROOT = Path("/dev/shm")
BUCKET = "bench"
COPIES = "copies"
FAN_OUT = tuple(f"copies{number}" for number in range(1, 5))
"""The buckets of the second server that get the same objects at once."""
GROUPS = ("large", "several", "small", "listing", "one")
"""Groups of cells that can be measured alone: one object of 2 GB, 64 of 256 MB, 5,000 of 64 KiB, listings and syncs,
one object of 1 KiB, which takes as long as a command needs to start and end."""
ONE_BYTES = 1 << 10
ONE_ROUNDS = 15
"""A short command varies more than a long one, and costs little."""
ROOM_SHARE = 0.5
"""Share of the machine's free memory that the destination of a cell may fill. Servers hold parts beside objects."""
MEMORY_MAX = 4 << 30
"""Memory of one command. One that needs more is ended before it harms the machine; that is a result, too."""


@dataclass(frozen=True)
class Sizes:
    """Volumes and numbers of objects."""

    large_bytes: int
    several_objects: int
    several_bytes: int
    small_objects: int
    small_bytes: int
    sync_objects: int
    many_objects: int
    rounds: int
    timeout_s: float


FULL = Sizes(2_000_000_000, 64, 256_000_000, 5_000, 64 << 10, 100_000, 1_000_000, rounds=3, timeout_s=300)
QUICK = Sizes(256_000_000, 8, 32_000_000, 500, 64 << 10, 5_000, 20_000, rounds=2, timeout_s=60)


@dataclass
class Bench:
    """The servers, data and tools of one run."""

    sizes: Sizes
    clients: Clients
    folder: Path

    @property
    def server(self) -> Server:
        """The server that all tools know."""
        return self.clients.server

    @property
    def second(self) -> Server:
        """A server for copies that must pass through the client."""
        return self.clients.second

    @property
    def out(self) -> Path:
        """Folder for downloads."""
        return self.folder / "out"

    def clear(self) -> None:
        """Empty the destinations of all cells. Deleting in the server's folder costs the server no CPU time."""
        shutil.rmtree(self.out, ignore_errors=True)
        places = [(self.server, COPIES), *((self.second, bucket) for bucket in (COPIES, *FAN_OUT))]
        for server, bucket in places:
            place = server.folder / "data" / bucket
            for each in list(place.iterdir()):
                _remove(each)
            shutil.rmtree(server.folder / "versions", ignore_errors=True)
            (server.folder / "versions").mkdir()


def _remove(path: Path) -> None:
    """Remove a folder or a file, also while the server still deletes parts of finished uploads in it."""
    while path.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_local(quick: bool, groups: Sequence[str] = GROUPS, rounds: int | None = None) -> list[Cell]:
    """Measure the cells of some groups of `local`, by default of all; `rounds` replaces the number of runs."""
    sizes = QUICK if quick else FULL
    if rounds is not None:
        sizes = replace(sizes, rounds=rounds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tradewind-bench-", dir=DATA_ROOT)))
        server = stack.enter_context(versitygw(data_parent=folder))
        second = stack.enter_context(versitygw(data_parent=folder))
        bench = Bench(sizes, Clients(folder, server, second, store_tools()), folder)
        for each in (server, second):
            client = S3(each.endpoint, each.access_key, each.secret_key)
            for bucket in (BUCKET, COPIES, *FAN_OUT):
                client.create_bucket(bucket)
        _fill(bench)
        measures = dict(
            zip(GROUPS, (_large_cells, _several_cells, _small_cells, _listing_cells, _one_cells), strict=True)
        )
        return [cell for name in GROUPS if name in groups for cell in measures[name](bench)]


def _fill(bench: Bench) -> None:
    """Write the source files, and the same objects in the first server's bucket."""
    _write_random(bench.folder / "in" / "large" / "object", bench.sizes.large_bytes)
    _write_random(bench.folder / "in" / "several" / "00", bench.sizes.several_bytes)
    _write_random(bench.folder / "in" / "one" / "object", ONE_BYTES)
    for number in range(bench.sizes.small_objects):
        _write_random(bench.folder / "in" / "small" / f"{number // 100:03}" / f"{number:06}", bench.sizes.small_bytes)
    command = bench.clients.tradewind("cp", "-r", f"{bench.folder}/in/", f"s3://{BUCKET}/")
    assert not isinstance(command, Skipped)
    fill = run(command, bench.clients.environment, timeout_s=600)
    if fill.failure:
        raise RuntimeError(f"the bucket could not be filled: {fill.failure}")


def _write_random(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for start in range(0, size, MIB):
            file.write(os.urandom(min(MIB, size - start)))


def _large_cells(bench: Bench) -> Iterator[Cell]:
    volume = (1, bench.sizes.large_bytes)
    yield _cell(bench, "one large object, up", volume, _up(bench, "large"))
    yield _cell(bench, "one large object, down", volume, _down(bench, "large"))
    yield _cell(bench, "one large object, bucket to bucket on one server", volume, _copy(bench, "large"))
    yield _cell(bench, "one large object, server to server", volume, _across(bench, "large", [COPIES]))
    four = (len(FAN_OUT), len(FAN_OUT) * bench.sizes.large_bytes)
    yield _cell(bench, "one large object, server to 4 buckets of another", four, _across(bench, "large", FAN_OUT))


def _several_cells(bench: Bench) -> Iterator[Cell]:
    """Measure objects of a size between. All are one file under many names, so that sources need no room."""
    wanted, size = bench.sizes.several_objects, bench.sizes.several_bytes
    count = max(1, min(wanted, int(_free_bytes() * ROOM_SHARE) // size))
    for root in (bench.folder / "in", bench.server.folder / "data" / BUCKET):
        for number in range(1, count):
            (root / "several" / f"{number:02}").hardlink_to(root / "several" / "00")
    note = "" if count == wanted else f" (of {wanted}: the machine's free memory has room for no more)"
    for title, commands in (("up", _up(bench, "several")), ("down", _down(bench, "several"))):
        yield _cell(bench, f"{size // 1_000_000} MB objects, {title}{note}", (count, count * size), commands)


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def _small_cells(bench: Bench) -> Iterator[Cell]:
    volume = (bench.sizes.small_objects, bench.sizes.small_objects * bench.sizes.small_bytes)
    yield _cell(bench, "small objects, up", volume, _up(bench, "small"))
    yield _cell(bench, "small objects, down", volume, _down(bench, "small"))
    yield _cell(bench, "small objects, bucket to bucket on one server", volume, _copy(bench, "small"))
    yield _cell(bench, "small objects, server to server", volume, _across(bench, "small", [COPIES]))


def _one_cells(bench: Bench) -> Iterator[Cell]:
    it, volume = bench.clients, (1, 0)
    file, copy = bench.folder / "in" / "one" / "object", bench.out / "object"
    copies: Commands = {
        "tradewind": it.tradewind("cp", file, copy),
        "rclone": it.rclone("copyto", file, copy),
    }
    ups: Commands = {
        "tradewind": it.tradewind("cp", file, f"s3://{COPIES}/object"),
        "s5cmd": it.s5cmd("cp", file, f"s3://{COPIES}/object"),
        "rclone": it.rclone("copyto", file, it.remote(it.server, f"{COPIES}/object")),
    }
    for title, commands in (("one small object, file to file", copies), ("one small object, up", ups)):
        yield _alternate(bench, title, volume, commands, bench.clear, rounds=ONE_ROUNDS)


def _up(bench: Bench, what: str) -> Commands:
    it, source = bench.clients, f"{bench.folder}/in/{what}/"
    return {
        "tradewind": it.tradewind("cp", "-r", source, f"s3://{COPIES}/"),
        "s5cmd": it.s5cmd("cp", source, f"s3://{COPIES}/"),
        "rclone": it.rclone("copy", source, it.remote(it.server, COPIES)),
        "juicefs": it.juicefs(source, it.minio_url(it.server, f"{COPIES}/")),
        "mc": it.mc("cp", "--recursive", source, f"first/{COPIES}/"),
        "aws crt": it.crt("up", source, COPIES),
    }


def _down(bench: Bench, what: str) -> Commands:
    it, place = bench.clients, f"{BUCKET}/{what}"
    return {
        "tradewind": it.tradewind("cp", "-r", f"s3://{place}/", f"{bench.out}/"),
        "s5cmd": it.s5cmd("cp", f"s3://{place}/*", f"{bench.out}/"),
        "rclone": it.rclone("copy", it.remote(it.server, place), bench.out),
        "juicefs": it.juicefs(it.minio_url(it.server, f"{place}/"), f"{bench.out}/"),
        "mc": it.mc("cp", "--recursive", f"first/{place}/", f"{bench.out}/"),
        "aws crt": it.crt("down", f"{place}/", bench.out),
    }


def _copy(bench: Bench, what: str) -> Commands:
    """Return the commands for a copy within a server. The server may copy itself; juicefs never requests that."""
    it, place = bench.clients, f"{BUCKET}/{what}"
    return {
        "tradewind": it.tradewind("cp", "-r", f"s3://{place}/", f"s3://{COPIES}/"),
        "s5cmd": it.s5cmd("cp", f"s3://{place}/*", f"s3://{COPIES}/"),
        "rclone": it.rclone("copy", it.remote(it.server, place), it.remote(it.server, COPIES)),
        "juicefs": it.juicefs(it.minio_url(it.server, f"{place}/"), it.minio_url(it.server, f"{COPIES}/")),
        "mc": it.mc("cp", "--recursive", f"first/{place}/", f"first/{COPIES}/"),
    }


def _across(bench: Bench, what: str, buckets: Sequence[str]) -> Commands:
    """Return the commands for a copy to buckets of the second server, whose credentials are others.

    s5cmd does not support that. Tradewind alone has several destinations; the others run once for each, at once.
    """
    it, place = bench.clients, f"{BUCKET}/{what}"
    sides = ["--src-endpoint", it.server.endpoint, "--src-profile", "first"]
    sides += ["--dst-endpoint", it.second.endpoint, "--dst-profile", "second"]
    destinations = [word for bucket in buckets for word in ("--to", f"s3://{bucket}/")]
    rclone = [it.rclone("copy", it.remote(it.server, place), it.remote(it.second, bucket)) for bucket in buckets]
    juicefs = [
        it.juicefs(it.minio_url(it.server, f"{place}/"), it.minio_url(it.second, f"{bucket}/")) for bucket in buckets
    ]
    mc = [it.mc("cp", "--recursive", f"first/{place}/", f"second/{bucket}/") for bucket in buckets]
    return {
        "tradewind": it.tradewind("cp", "-r", f"s3://{place}/", *destinations, *sides),
        **{name: at_once(each) for name, each in (("rclone", rclone), ("juicefs", juicefs), ("mc", mc))},
    }


def _listing_cells(bench: Bench) -> Iterator[Cell]:
    yield _sync_cell(bench, bench.sizes.sync_objects)
    many = bench.sizes.many_objects
    _write_many(bench, many)
    yield _alternate(bench, "list", (many, 0), _list(bench), lambda: None)
    yield _sync_cell(bench, many)
    bench.clear()


def _write_many(bench: Bench, count: int) -> None:
    """Write the same tiny files to a folder and to a bucket. In each place all are one file under many names."""
    for root in (bench.folder / "many", bench.server.folder / "data" / COPIES):
        root.mkdir(exist_ok=True)
        first = root / "first"
        first.write_bytes(b"same")
        for number in range(count - 1):
            path = root / f"{number // 1000:03}" / f"{number:07}"
            if number % 1000 == 0:
                path.parent.mkdir(exist_ok=True)
            if not path.exists():
                path.hardlink_to(first)


def _list(bench: Bench) -> Commands:
    it = bench.clients
    return {
        "tradewind": it.tradewind("ls", "--recursive", f"s3://{COPIES}/"),
        "s5cmd": it.s5cmd("ls", f"s3://{COPIES}/*"),
        "rclone": it.rclone("lsf", "--recursive", "--fast-list", it.remote(it.server, COPIES)),
        "mc": it.mc("ls", "--recursive", f"first/{COPIES}/"),
        "aws crt": it.crt("list", COPIES),
    }


def _cell(bench: Bench, title: str, volume: tuple[int, int], commands: Commands) -> Cell:
    return _alternate(bench, title, volume, commands, bench.clear)


def _sync_cell(bench: Bench, count: int) -> Cell:
    """Measure a sync from files to a bucket that finds nothing to do, comparing only sizes.

    Times are not compared, because each tool has its own way to keep a file's time in a store.
    """
    _write_many(bench, count)
    it, source = bench.clients, bench.folder / "many"
    commands: Commands = {
        "tradewind": it.tradewind("sync", "--compare", "size", f"{source}/", f"s3://{COPIES}/"),
        "s5cmd": it.s5cmd("sync", "--size-only", f"{source}/", f"s3://{COPIES}/"),
        "rclone": it.rclone("sync", "--size-only", "--fast-list", source, it.remote(it.server, COPIES)),
        "juicefs": it.juicefs(f"{source}/", it.minio_url(it.server, f"{COPIES}/")),
        "mc": it.mc("mirror", f"{source}/", f"first/{COPIES}/"),
    }
    return _alternate(bench, "sync with nothing to do", (count, 0), commands, lambda: None)


def _alternate(
    bench: Bench,
    title: str,
    volume: tuple[int, int],
    commands: Commands,
    before: Callable[[], None],
    rounds: int | None = None,
) -> Cell:
    """Run each command once per round. A command that failed or hung is not run again."""
    runs: dict[str, list[Cost]] = {name: [] for name in commands}
    server_cpu_s: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds or bench.sizes.rounds):
        for name, command in commands.items():
            if runs[name] and runs[name][-1].failure:
                continue
            if isinstance(command, Skipped):
                runs[name].append(Cost(0, 0, 0, f"skipped: {command.reason}"))
                continue
            before()
            used = bench.server.cpu_s() + bench.second.cpu_s()
            runs[name].append(
                run(
                    command,
                    bench.clients.environment,
                    bench.sizes.timeout_s,
                    cwd=bench.folder,
                    rss_bytes_max=MEMORY_MAX,
                )
            )
            server_cpu_s[name].append(bench.server.cpu_s() + bench.second.cpu_s() - used)
    objects, size = volume
    entries = tuple(Entry(name, Spread(tuple(runs[name])), server_cpu_s[name]) for name in commands)
    return Cell(title, objects, size, entries)
