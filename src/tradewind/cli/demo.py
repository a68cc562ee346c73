"""`tradewind demo`: the main job on real input, with a fault on the way, told as a story."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tradewind.cli.arguments import typed
from tradewind.cli.output import Talk
from tradewind.errors import JobFailed, UsageError
from tradewind.model.event import ObjectFailed, Progress, Summary
from tradewind.model.units import format_bytes, format_rate, parse_bytes
from tradewind.transfer.client import Client, RunningJob
from tradewind.transfer.report import summary_lines
from tradewind.transfer.request import Options

USAGE = "[OPTION]…"
HELP = """\
Moves a real tree of this machine from a source through two relays to a sink: five gateway processes, two routes, mutual
TLS. Kills one relay in the middle, and proves at the end that every byte arrived. Needs no account and no server; what
it writes lies in a temporary folder and is removed."""
EXAMPLES = """\
  tradewind demo
  tradewind demo --size 300MB
  tradewind demo --tree ~/src --keep"""

#: Taken unless told otherwise; less where the disk has less than three times as much.
DEFAULT_BYTES = 1_200_000_000
#: Large files may fill this part of it, so that thousands of small ones find room.
LARGE_PART = 0.7
LARGE_FILE_BYTES = 50_000_000
#: The rate is limited so that the middle of the job can be watched.
RATE_BYTES_PER_S = 150_000_000
#: A relay is killed when this part of the bytes has arrived.
KILL_AT = 0.35
COMPARE_BUFFER_BYTES = 1 << 20

TOPOLOGY = {
    "description": "two routes from one source to one sink, each through its own relay",
    "gateways": {
        "source": {"role": "source"},
        "north": {"role": "relay"},
        "south": {"role": "relay"},
        "sink": {"role": "sink"},
    },
    "routes": [
        {"nodes": ["source", "north", "sink"], "share": 0.6, "usd_per_gb": 0.02},
        {"nodes": ["source", "south", "sink"], "share": 0.4, "usd_per_gb": 0.05},
    ],
    "connections": 8,
}
VICTIM = "north"


@dataclass(frozen=True, slots=True)
class Cargo:
    """What is moved: relative names below `/`, with sizes."""

    names: list[str]
    sizes: list[int]

    @property
    def bytes(self) -> int:
        """All together."""
        return sum(self.sizes)


def add_arguments(parser: ArgumentParser) -> None:
    """Size, tree, place."""
    parser.add_argument("--size", metavar="SIZE", type=typed(parse_bytes), help="move about so much (default 1.2GB)")
    parser.add_argument("--tree", metavar="DIR", action="append", help="take files from here; may be repeated")
    parser.add_argument("--keep", action="store_true", help="leave the copy where it is")


def run(args: Namespace) -> int:
    """Tells the story. Exit code 0 only if every file arrived and both trees are the same."""
    place = Path(tempfile.mkdtemp(prefix="tradewind-demo-"))
    try:
        return _story(args, place)
    finally:
        if args.keep:
            if not args.quiet:
                print(f"The copy is in {place / 'copy'}", file=sys.stderr)
        else:
            shutil.rmtree(place, ignore_errors=True)


def _story(args: Namespace, place: Path) -> int:
    talk = Talk(quiet=args.quiet)
    cargo = choose_cargo(_trees(args), _budget(args, place))
    large = [size for size in cargo.sizes if size >= LARGE_FILE_BYTES]
    talk.say(
        f"1. Cargo: {len(cargo.names):,} real files of this machine, {format_bytes(cargo.bytes)} in all;"
        f" {len(large)} of them are large, up to {format_bytes(max(cargo.sizes))}."
    )
    (place / "files").write_text("".join(f"{name}\n" for name in cargo.names), encoding="utf-8")
    (place / "topology.json").write_text(json.dumps(TOPOLOGY), encoding="utf-8")
    options = Options(
        recursive=True, files_from=str(place / "files"), limit_bytes_per_s=RATE_BYTES_PER_S, verify="read"
    )
    client = Client(state_dir=str(place / "state"), gateway=args.gateway)
    copy = place / "copy"
    job = client.start("/", f"{copy}/", options, topology=str(place / "topology.json"), verb="demo")
    try:
        pids = job.gateway_pids
        talk.say(
            "2. Way: source → north → sink (60%) and source → south → sink (40%), mutual TLS 1.3 on every hop,",
            f"   by a CA made for this run. {len(pids)} processes: "
            + ", ".join(f"{name} {pid}" for name, pid in pids.items())
            + ".",
            f"   The rate is held to {format_rate(RATE_BYTES_PER_S)} so that there is something to watch.",
        )
        _watch(job, cargo, talk)
    except KeyboardInterrupt:
        # Nothing is to be resumed, and nothing may be written any more into what is removed next.
        job.kill()
        raise
    finally:
        talk.end()
        job.close()
    return _end(job, cargo, copy, talk)


def _watch(job: RunningJob, cargo: Cargo, talk: Talk) -> None:
    killed = False
    for event in job.events():
        if isinstance(event, ObjectFailed):
            talk.event(event)
        if isinstance(event, Summary):
            break
        if isinstance(event, Progress) and not killed and event.bytes_done >= KILL_AT * cargo.bytes:
            killed = True
            pid = job.gateway_pids[VICTIM]
            os.kill(pid, signal.SIGKILL)
            talk.say(
                f"3. At {format_bytes(event.bytes_done)}: kill -9 {pid}, the relay {VICTIM} is gone. What it carried"
                " goes by the other route."
            )
        talk.event(event)
    if not killed and job.summary is not None and job.summary.outcome == "done":
        raise JobFailed("the job was done before a relay could be killed", hint="take more: tradewind demo --size 2GB")


def _end(job: RunningJob, cargo: Cargo, copy: Path, talk: Talk) -> int:
    assert job.summary is not None
    talk.say("4. Report of the lead:", *(f"   {line}" for line in summary_lines(job.summary, job.plan)))
    job.result()
    began = time.monotonic()
    differences = list(compare(cargo, copy))
    for difference in differences[:10]:
        talk.warn(f"   DIFFERENT: {difference}")
    if differences:
        raise JobFailed(f"{len(differences)} of {len(cargo.names)} files differ from their originals")
    talk.say(
        f"5. Compared without Tradewind, byte by byte: all {len(cargo.names):,} files are the same, and there is no"
        f" other file ({time.monotonic() - began:.1f} s)."
    )
    return 0


def choose_cargo(trees: list[Path], budget_bytes: int) -> Cargo:
    """Readable regular files below the trees, large ones first up to their part, then small ones. Raises UsageError."""
    large: list[tuple[str, int]] = []
    small: list[tuple[str, int]] = []
    room_large, room_small = int(budget_bytes * LARGE_PART), int(budget_bytes * (1 - LARGE_PART))
    for name, size in _files(trees):
        if size >= LARGE_FILE_BYTES:
            if size <= room_large:
                large.append((name, size))
                room_large -= size
        elif size <= room_small:
            small.append((name, size))
            room_small -= size
        if room_large < LARGE_FILE_BYTES and room_small < 4096:
            break
    chosen = sorted(large + small)
    if not chosen:
        raise UsageError("no readable files found for the demo", hint="name a folder: tradewind demo --tree DIR")
    return Cargo([name for name, _ in chosen], [size for _, size in chosen])


def compare(cargo: Cargo, copy: Path) -> Iterator[str]:
    """What differs between the originals and the copy, one line each."""
    for name in cargo.names:
        try:
            if not _same(Path("/") / name, copy / name):
                yield f"/{name}"
        except OSError as error:
            yield f"/{name}: {error.strerror}"
    expected = set(cargo.names)
    for folder, _, files in os.walk(copy):
        for file in files:
            name = os.path.relpath(os.path.join(folder, file), copy)
            if name not in expected:
                yield f"{name}: not among the originals"


def _same(one: Path, other: Path) -> bool:
    with one.open("rb", buffering=0) as left, other.open("rb", buffering=0) as right:
        while True:
            piece = left.read(COMPARE_BUFFER_BYTES)
            if piece != right.read(COMPARE_BUFFER_BYTES):
                return False
            if not piece:
                return True


def _files(trees: list[Path]) -> Iterator[tuple[str, int]]:
    """Names relative to `/` and sizes, without links, without names that cannot stand in a list."""
    seen: set[str] = set()
    for tree in trees:
        for folder, folders, files in os.walk(tree):
            folders.sort()
            for file in sorted(files):
                path = os.path.join(folder, file)
                if path in seen or not _listable(path):
                    continue
                seen.add(path)
                try:
                    entry = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISREG(entry.st_mode) and os.access(path, os.R_OK):
                    yield path.lstrip("/"), entry.st_size


def _listable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in path and "\r" not in path


def _trees(args: Namespace) -> list[Path]:
    """Those named, else the places where a machine keeps toolchains, libraries and documentation."""
    if args.tree:
        return [Path(tree).resolve() for tree in args.tree]
    rustup = Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup")) / "toolchains"
    usual = [rustup, Path("/usr/share/doc"), Path("/usr/lib"), Path(sys.base_prefix) / "lib", Path("/usr/share")]
    return [tree.resolve() for tree in usual if tree.is_dir()]


def _budget(args: Namespace, place: Path) -> int:
    wanted: int = args.size or DEFAULT_BYTES
    free = shutil.disk_usage(place).free
    if free < wanted + wanted // 2:
        wanted = free // 3
    return wanted
