"""``local``: one machine, one S3 server, one client; compared with s5cmd, rclone and juicefs.

Each cell moves the same bytes with each tool in turn (A B C D, A B C D, …) and reports the median. All data is in
memory (/dev/shm), so that no disk is measured. Each run starts with an empty destination.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Cost, Spread, run
from benchmarks.peers import StoreTools, store_tools
from benchmarks.tables import Cell, Entry
from testbed.drive import find_binary
from testbed.s3 import S3
from testbed.servers import Server, versitygw
from testbed.trees import MIB

DATA_ROOT = Path("/dev/shm")
BUCKET = "bench"
COPIES = "copies"
PART = 16 * MIB
RCLONE_FLAGS = [
    "--transfers=16", "--checkers=32", "--s3-chunk-size=16M", "--s3-upload-concurrency=8",
    "--s3-use-unsigned-payload=true", "--s3-no-check-bucket", "--config=/dev/null",
]  # fmt: skip
"""Options that rclone's documentation recommends for speed. Without an unsigned payload it hashes every body twice over
plain HTTP."""
JUICEFS_FLAGS = ["--threads=32", "--list-threads=4"]


@dataclass(frozen=True)
class Sizes:
    """Volumes and numbers of objects."""

    large_bytes: int
    small_objects: int
    small_bytes: int
    sync_objects: int
    rounds: int
    timeout_s: float


FULL = Sizes(2_000_000_000, 5_000, 64 << 10, 100_000, rounds=3, timeout_s=120)
QUICK = Sizes(256_000_000, 500, 64 << 10, 5_000, rounds=2, timeout_s=60)


@dataclass
class Bench:
    """The server, data and tools of one run."""

    sizes: Sizes
    server: Server
    second: Server
    """A second server, for copies that must pass through the client."""
    folder: Path
    tools: StoreTools
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = {**os.environ, **self.server.environment, "HOME": str(self.folder / "home")}
        self.environment |= {"XDG_STATE_HOME": str(self.folder / "state"), "JFS_NO_UPDATE_CHECK": "1"}
        # As after `pip install`, Python must reuse its byte code, not compile it in each run.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        both = self.server, self.second
        keys = "".join(
            f"[{name}]\naws_access_key_id={each.access_key}\naws_secret_access_key={each.secret_key}\n"
            for name, each in zip(("first", "second"), both, strict=True)
        )
        (self.folder / "credentials").write_text(keys)
        self.environment["AWS_SHARED_CREDENTIALS_FILE"] = str(self.folder / "credentials")

    @property
    def out(self) -> Path:
        """Folder for downloads."""
        return self.folder / "out"

    def clear(self) -> None:
        """Empty the destinations of all cells. Deleting in the server's folder costs the server no CPU time."""
        shutil.rmtree(self.out, ignore_errors=True)
        for server, bucket in ((self.server, COPIES), (self.second, COPIES)):
            place = server.folder / "data" / bucket
            for each in list(place.iterdir()):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(server.folder / "versions", ignore_errors=True)
            (server.folder / "versions").mkdir()

    def s5cmd(self, *words: str | Path) -> list[str | Path]:
        """Return an s5cmd command line."""
        return [self.tools.s5cmd, "--endpoint-url", self.server.endpoint, "--log", "error", *words]

    def rclone(self, *words: str | Path) -> list[str | Path]:
        """Return an rclone command line."""
        return [self.tools.rclone, *words, *RCLONE_FLAGS]

    def remote(self, server: Server, path: str) -> str:
        """Return an rclone remote without a configuration file. The credentials are in the environment."""
        profile = "first" if server is self.server else "second"
        return f":s3,provider=Other,env_auth=true,profile={profile},endpoint='{server.endpoint}':{path}"

    def juicefs(self, *words: str) -> list[str | Path]:
        """Return a `juicefs sync` command line."""
        return [self.tools.juicefs, "--log-level=error", "sync", *JUICEFS_FLAGS, *words]

    def minio_url(self, server: Server, path: str) -> str:
        """Return juicefs's form of a path-style endpoint, which is the only way to pass it credentials."""
        host = server.endpoint.removeprefix("http://")
        return f"minio://{server.access_key}:{server.secret_key}@{host}/{path}"

    def tradewind(self, *words: str | Path) -> list[str | Path]:
        """Return a tradewind command line."""
        return [find_binary("tradewind"), *words, "--quiet"]


Commands = dict[str, list[str | Path]]


def run_local(quick: bool) -> list[Cell]:
    """Measure all cells of `local`."""
    sizes = QUICK if quick else FULL
    tools = store_tools()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tradewind-bench-", dir=DATA_ROOT)))
        server = stack.enter_context(versitygw(data_parent=folder))
        second = stack.enter_context(versitygw(data_parent=folder))
        bench = Bench(sizes, server, second, folder, tools)
        for each in (server, second):
            client = S3(each.endpoint, each.access_key, each.secret_key)
            for bucket in (BUCKET, COPIES):
                client.create_bucket(bucket)
        _fill(bench)
        return [
            *(_cell(bench, title, volume, commands) for title, volume, commands in _cells(bench)),
            _sync_cell(bench),
        ]


def _fill(bench: Bench) -> None:
    """Write the source files, and the same objects in the first server's bucket."""
    large = bench.folder / "in" / "large" / "object"
    large.parent.mkdir(parents=True)
    with large.open("wb") as file:
        for start in range(0, bench.sizes.large_bytes, MIB):
            file.write(os.urandom(min(MIB, bench.sizes.large_bytes - start)))
    small = bench.folder / "in" / "small"
    for number in range(bench.sizes.small_objects):
        path = small / f"{number // 100:03}" / f"{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(bench.sizes.small_bytes))
    fill = run(bench.s5cmd("cp", f"{bench.folder}/in/", f"s3://{BUCKET}/"), bench.environment, timeout_s=600)
    if fill.failure:
        raise RuntimeError(f"the bucket could not be filled: {fill.failure}")


def _cells(bench: Bench) -> list[tuple[str, tuple[int, int], Commands]]:
    large = (1, bench.sizes.large_bytes)
    small = (bench.sizes.small_objects, bench.sizes.small_objects * bench.sizes.small_bytes)
    return [
        ("one large object, up", large, _up(bench, "large")),
        ("one large object, down", large, _down(bench, "large")),
        ("one large object, bucket to bucket on one server", large, _copy(bench, "large")),
        ("one large object, server to server", large, _across(bench, "large")),
        ("small objects, up", small, _up(bench, "small")),
        ("small objects, down", small, _down(bench, "small")),
        ("small objects, bucket to bucket on one server", small, _copy(bench, "small")),
        ("small objects, server to server", small, _across(bench, "small")),
    ]


def _up(bench: Bench, what: str) -> Commands:
    source = f"{bench.folder}/in/{what}/"
    return {
        "tradewind": bench.tradewind("cp", "-r", source, f"s3://{COPIES}/"),
        "s5cmd": bench.s5cmd("cp", source, f"s3://{COPIES}/"),
        "rclone": bench.rclone("copy", source, bench.remote(bench.server, COPIES)),
        "juicefs": bench.juicefs(source, bench.minio_url(bench.server, f"{COPIES}/")),
    }


def _down(bench: Bench, what: str) -> Commands:
    return {
        "tradewind": bench.tradewind("cp", "-r", f"s3://{BUCKET}/{what}/", f"{bench.out}/"),
        "s5cmd": bench.s5cmd("cp", f"s3://{BUCKET}/{what}/*", f"{bench.out}/"),
        "rclone": bench.rclone("copy", bench.remote(bench.server, f"{BUCKET}/{what}"), bench.out),
        "juicefs": bench.juicefs(bench.minio_url(bench.server, f"{BUCKET}/{what}/"), f"{bench.out}/"),
    }


def _copy(bench: Bench, what: str) -> Commands:
    """Return the commands for a copy within a server. The server may copy itself; juicefs never requests that."""
    return {
        "tradewind": bench.tradewind("cp", "-r", f"s3://{BUCKET}/{what}/", f"s3://{COPIES}/"),
        "s5cmd": bench.s5cmd("cp", f"s3://{BUCKET}/{what}/*", f"s3://{COPIES}/"),
        "rclone": bench.rclone(
            "copy", bench.remote(bench.server, f"{BUCKET}/{what}"), bench.remote(bench.server, COPIES)
        ),
        "juicefs": bench.juicefs(
            bench.minio_url(bench.server, f"{BUCKET}/{what}/"), bench.minio_url(bench.server, f"{COPIES}/")
        ),
    }


def _across(bench: Bench, what: str) -> Commands:
    """Return the commands for a copy between two servers with different credentials, which s5cmd does not support."""
    sides = ["--src-endpoint", bench.server.endpoint, "--src-profile", "first"]
    sides += ["--dst-endpoint", bench.second.endpoint, "--dst-profile", "second"]
    return {
        "tradewind": bench.tradewind("cp", "-r", f"s3://{BUCKET}/{what}/", f"s3://{COPIES}/", *sides),
        "rclone": bench.rclone(
            "copy", bench.remote(bench.server, f"{BUCKET}/{what}"), bench.remote(bench.second, COPIES)
        ),
        "juicefs": bench.juicefs(
            bench.minio_url(bench.server, f"{BUCKET}/{what}/"), bench.minio_url(bench.second, f"{COPIES}/")
        ),
    }


def _cell(bench: Bench, title: str, volume: tuple[int, int], commands: Commands) -> Cell:
    return _alternate(bench, title, volume, commands, bench.clear)


def _sync_cell(bench: Bench) -> Cell:
    """Measure a sync from files to a bucket that finds nothing to do, comparing only sizes.

    Times are not compared, because each tool has its own way to keep a file's time in a store.
    """
    bench.clear()
    source = bench.folder / "many"
    for number in range(bench.sizes.sync_objects):
        relative = Path(f"{number // 1000:03}") / f"{number:07}"
        for root in (source, bench.server.folder / "data" / COPIES):
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"same")
    commands = {
        "tradewind": bench.tradewind("sync", "--compare", "size", f"{source}/", f"s3://{COPIES}/"),
        "s5cmd": bench.s5cmd("sync", "--size-only", f"{source}/", f"s3://{COPIES}/"),
        "rclone": bench.rclone("sync", "--size-only", "--fast-list", source, bench.remote(bench.server, COPIES)),
        "juicefs": bench.juicefs(f"{source}/", bench.minio_url(bench.server, f"{COPIES}/")),
    }
    cell = _alternate(bench, "sync with nothing to do", (bench.sizes.sync_objects, 0), commands, lambda: None)
    bench.clear()
    return cell


def _alternate(
    bench: Bench, title: str, volume: tuple[int, int], commands: Commands, before: Callable[[], None]
) -> Cell:
    """Run each command once per round. A command that hung is not run again."""
    runs: dict[str, list[Cost]] = {name: [] for name in commands}
    server_cpu_s: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(bench.sizes.rounds):
        for name, command in commands.items():
            if runs[name] and runs[name][-1].failure:
                continue
            before()
            used = bench.server.cpu_s() + bench.second.cpu_s()
            runs[name].append(run(command, bench.environment, bench.sizes.timeout_s, cwd=bench.folder))
            server_cpu_s[name].append(bench.server.cpu_s() + bench.second.cpu_s() - used)
    objects, size = volume
    entries = tuple(Entry(name, Spread(tuple(runs[name])), server_cpu_s[name]) for name in commands)
    return Cell(title, objects, size, entries)
