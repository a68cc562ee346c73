"""`tradewind doctor`."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tradewind._version import __version__
from tradewind.cli.one_store import place_of
from tradewind.cli.options import access, add_side_arguments
from tradewind.errors import TradewindError
from tradewind.gateway.find import find_gateway
from tradewind.gateway.task import run_task
from tradewind.model.document import to_document
from tradewind.transfer.jobs import JobStore
from tradewind.transfer.request import directory_place

USAGE = "[OPTION]… [URL…]"
HELP = """\
Says what works here: the gateway program, the kernel, limits, the state folder; and for each URL given, which
credentials are found (never shown), whether the store answers, and how far the clocks are apart."""
EXAMPLES = """\
  tradewind doctor
  tradewind doctor s3://bucket gs://other
  tradewind doctor s3://bucket --endpoint http://127.0.0.1:9000 --json"""

#: Fewer open files than this hold up wide hops: 64 connections in, 64 out, files, sockets to stores.
OPEN_FILES_MIN = 1024
#: Smaller socket buffers than this bound a connection at 200 ms to about 160 Mbit/s.
SOCKET_BUFFER_BYTES_MIN = 4 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `mend` says how, where something does not work or could work better."""

    name: str
    good: bool
    what: str
    mend: str | None = None


def add_arguments(parser: ArgumentParser) -> None:
    """URLs."""
    parser.add_argument("urls", metavar="URL", nargs="*", help="stores to try")
    add_side_arguments(parser, "src", "how the stores are reached (settings: src_*)", short=True)


def run(args: Namespace) -> int:
    """Looks, and prints what it found. Exit code 1 if something does not work."""
    bad = False
    for finding in _findings(args):
        bad = bad or not finding.good
        if args.json:
            import json

            print(json.dumps(to_document(finding)))
            continue
        print(f"{'ok ' if finding.good else 'BAD'}  {finding.name:<14} {finding.what}")
        if finding.mend:
            print(f"     {'':<14} → {finding.mend}")
    sys.stdout.flush()
    code = _stores(args) if args.urls else 0
    return code or int(bad)


def _findings(args: Namespace) -> Iterator[Finding]:
    yield Finding("tradewind", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield _gateway(args)
    yield _state_folder(args)
    configuration = args.configuration
    yield Finding(
        "settings", True, f"{configuration.path}{'' if Path(configuration.path).exists() else ' (not there)'}"
    )
    yield _open_files()
    if sys.platform == "linux":
        yield _congestion_control()
        yield _socket_buffers()


def _gateway(args: Namespace) -> Finding:
    try:
        binary = args.gateway or find_gateway()
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except TradewindError as error:
        return Finding("gateway", False, str(error), error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("gateway", False, f"does not run: {error}", "install tradewind again")
    said = done.stdout.strip()
    if said.split()[-1:] != [__version__]:
        return Finding("gateway", False, f"{said} at {binary}", f"install version {__version__} of both")
    return Finding("gateway", True, f"{said} at {binary}")


def _state_folder(args: Namespace) -> Finding:
    folder = JobStore(args.state_dir).folder
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Finding("jobs", False, f"{folder}: {error.strerror}", "set TRADEWIND_STATE_DIR to a folder of yours")
    if not os.access(folder, os.W_OK):
        return Finding("jobs", False, f"{folder} cannot be written", "set TRADEWIND_STATE_DIR to a folder of yours")
    return Finding("jobs", True, folder)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    what = f"{soft} now, {'unlimited' if hard == resource.RLIM_INFINITY else hard} at most"
    if soft < OPEN_FILES_MIN:
        return Finding("open files", False, what, f"ulimit -n {OPEN_FILES_MIN * 8}")
    return Finding("open files", True, what)


def _congestion_control() -> Finding:
    folder = Path("/proc/sys/net/ipv4")
    try:
        available = (folder / "tcp_available_congestion_control").read_text().split()
        chosen = (folder / "tcp_congestion_control").read_text().strip()
    except OSError as error:
        return Finding("kernel tcp", True, f"cannot be asked: {error.strerror}")
    if "bbr" in available:
        return Finding("kernel tcp", True, f"bbr is there ({chosen} by default)")
    mend = "for long, lossy links: modprobe tcp_bbr, as root"
    return Finding("kernel tcp", True, f"no bbr; {chosen} is used", mend)


def _socket_buffers() -> Finding:
    sizes = {}
    for name in ("rmem_max", "wmem_max"):
        try:
            sizes[name] = int(Path(f"/proc/sys/net/core/{name}").read_text())
        except (OSError, ValueError):
            return Finding("kernel buffers", True, "cannot be asked")
    what = ", ".join(f"{name} {size >> 10} KiB" for name, size in sizes.items())
    if min(sizes.values()) < SOCKET_BUFFER_BYTES_MIN:
        mend = f"for long links: sysctl -w net.core.rmem_max={16 << 20} net.core.wmem_max={16 << 20}, as root"
        return Finding("kernel buffers", True, what, mend)
    return Finding("kernel buffers", True, what)


def _stores(args: Namespace) -> int:
    stores = [to_document(directory_place(place_of(url), access(args, "src"))[0]) for url in args.urls]
    return run_task(args.gateway or find_gateway(), {"task": "doctor", "stores": stores, "json": args.json})
