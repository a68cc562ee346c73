"""Checks of an installation: the gateway program, folders, settings, this machine, credentials and clocks."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tradewind._version import __version__
from tradewind.engine.jobs import JobStore
from tradewind.engine.tasks import clouds_findings, find_gateway, store_findings
from tradewind.errors import ConfigError, TradewindError
from tradewind.model.files import private_folder, state_folder
from tradewind.model.records import dataclass, replace
from tradewind.model.sites import Sites
from tradewind.model.store import Access
from tradewind.model.units import format_bytes

__all__ = ["Finding", "check_installation", "check_stores"]

#: Minimum open files for wide hops: 64 connections in, 64 out, files, sockets to stores.
OPEN_FILES_MIN = 1024
#: Maximum memory of a gateway by default: 512 MiB (docs/concepts/memory.md).
MEMORY_BYTES_MIN = 1 << 30
#: Minimum free space: journals and logs of a job of a million objects take some hundred MB.
STATE_DISK_BYTES_MIN = 1 << 30
#: Minimum socket buffer; smaller ones limit a connection at 200 ms to about 160 Mbit/s.
SOCKET_BUFFER_BYTES_MIN = 4 << 20
#: Maximum number of fleets that a finding names.
IDS_MAX = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `mend` describes the remedy if a part does not work, or could work better.

    `absent`: nothing is set up, which is not a fault. `doubtful`: it works, but not as it should. `store`: URL of the
    store that it is about, if any.
    """

    name: str
    good: bool
    what: str
    mend: str | None = None
    absent: bool = False
    doubtful: bool = False
    store: str | None = None


def check_installation(
    *,
    gateway: str | None,
    state_dir: str | None,
    settings_file: str,
    unknown_variables: Sequence[str],
    access: Access | None,
    sites: Sites | None = None,
) -> Iterator[Finding]:
    """Yield each finding, in the order of the report; no check takes longer than some seconds.

    Clouds and providers are asked at the same time, while this machine is checked.

    `unknown_variables` has a line for each variable that looks like a setting but is not one. With `access` the clouds'
    credentials and clocks are checked. With `sites` their providers are asked for machines and quotas.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        clouds = pool.submit(lambda: list(_clouds(gateway, access)) if access is not None else [])
        machines = pool.submit(lambda: list(_sites(gateway, state_dir, sites)) if sites else [])
        yield from _here(gateway, state_dir, settings_file, unknown_variables)
        yield from clouds.result()
        yield from machines.result()


def _here(
    gateway: str | None, state_dir: str | None, settings_file: str, unknown_variables: Sequence[str]
) -> Iterator[Finding]:
    """Yield what this machine itself tells."""
    yield Finding("tradewind", True, f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield _gateway(gateway)
    yield _state_folder(state_dir)
    yield from _orphaned_fleets(state_dir)
    yield _settings(settings_file)
    yield from _variables(unknown_variables)
    yield _processors()
    if sys.platform == "linux":
        yield _memory()
    yield _open_files()
    if sys.platform == "linux":
        yield _congestion_control()
        yield _socket_buffers()


def _sites(gateway: str | None, state_dir: str | None, sites: Sites) -> Iterator[Finding]:
    """Return for each place where gateways may run what its provider offers, or what is missing."""
    from tradewind.engine.job_control import JobControl
    from tradewind.engine.setup import Note, Unusable, available

    try:
        for one in available(JobControl(state_dir=state_dir, gateway=gateway), sites):
            if isinstance(one, str):
                yield Finding("machines", True, one)
            elif isinstance(one, Note):
                yield Finding("permissions", True, f"{one.place}: {one.what}")
            else:
                is_usable = not isinstance(one, Unusable)
                yield Finding("machines", is_usable, f"{one.place}: {one.reason}", one.hint, doubtful=is_usable)
    except TradewindError as error:
        yield Finding("machines", False, str(error), error.hint)


def _gateway(gateway: str | None) -> Finding:
    try:
        binary = gateway or find_gateway()
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except TradewindError as error:
        return Finding("gateway", False, str(error), error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("gateway", False, f"does not run: {error}", "install tradewind again")
    said = done.stdout.strip()
    if said.split()[-1:] != [__version__]:
        return Finding("gateway", False, f"{said} at {binary}", f"install version {__version__} of both")
    return Finding("gateway", True, f"{said} at {binary}")


def _state_folder(state_dir: str | None) -> Finding:
    folder = JobStore(state_dir).folder
    try:
        state_folder(Path(folder).parent)
        private_folder(folder)
    except ConfigError as error:
        return Finding("jobs", False, str(error), error.hint)
    except OSError as error:
        return Finding("jobs", False, f"{folder}: {error.strerror}", "set TRADEWIND_STATE_DIR to a folder of your own")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("jobs", False, f"{folder} cannot be written", "set TRADEWIND_STATE_DIR to a folder of your own")
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    what = f"{folder}, {format_bytes(free)} free"
    if free < STATE_DISK_BYTES_MIN or (disk.f_files and not disk.f_favail):
        return Finding("jobs", False, what, "free some space, or set TRADEWIND_STATE_DIR to a folder on another disk")
    return Finding("jobs", True, what)


def _orphaned_fleets(state_dir: str | None) -> Iterator[Finding]:
    """Yield a finding about the fleets whose machines may run, and be billed, although nothing uses them."""
    from tradewind.engine.job_control import JobControl
    from tradewind.engine.orphans import orphaned_fleets

    try:
        found = [record.id for record in orphaned_fleets(JobControl(state_dir=state_dir))]
    except (TradewindError, OSError):
        return  # The finding about the folder says why.
    if found:
        ids = f"{', '.join(found[:IDS_MAX])}{' and others' if len(found) > IDS_MAX else ''}"
        what = f"machines of {ids} may still run, but no command uses them"
        yield Finding("fleets", True, what, "tradewind fleet down", doubtful=True)


def _settings(path: str) -> Finding:
    if os.path.exists(path):
        return Finding("settings", True, path)  # It was read before this line.
    folder = os.path.dirname(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        mend = "set XDG_CONFIG_HOME or TRADEWIND_CONFIG to a folder of your own, or use no settings"
        return Finding("settings", True, f"{path} (does not exist, and cannot be created)", mend)
    return Finding("settings", True, f"{path} (does not exist; using defaults)")


def _variables(unknown: Sequence[str]) -> Iterator[Finding]:
    """Return unknown variables that look like ours, and missing files that the clouds' variables name."""
    for line in unknown:
        what, _, mend = line.removeprefix("warning: ").partition("; ")
        yield Finding("settings", False, what, mend)
    for variable in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        path = os.environ.get(variable)
        if path and not os.path.exists(path):
            yield Finding(
                "settings", False, f"{variable} names {path}, which does not exist", f"unset {variable} or correct it"
            )


def _processors() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("processors", True, f"{usable} usable of {os.cpu_count()}")


def _memory() -> Finding:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(rows[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return Finding("memory", True, "unknown")
    limit = _control_group_bytes()
    what = f"{format_bytes(free)} available of {format_bytes(total)}"
    if limit is not None and limit < total:
        what += f", {format_bytes(limit)} allowed by the control group"
    if min(free, limit or free) < MEMORY_BYTES_MIN:
        return Finding("memory", False, what, "close other programs, or raise the limit: a gateway takes up to 512 MiB")
    return Finding("memory", True, what)


def _control_group_bytes() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(path).read_text())
        except (OSError, ValueError):  # Missing, or "max".
            continue
    return None


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
        return Finding("kernel tcp", True, f"unknown: {error.strerror}")
    if "bbr" in available:
        return Finding("kernel tcp", True, f"{chosen} by default, bbr is available")
    mend = "for long, lossy links: modprobe tcp_bbr, as root"
    return Finding("kernel tcp", True, f"no bbr; {chosen} is used", mend)


def _socket_buffers() -> Finding:
    sizes = {}
    for name in ("rmem_max", "wmem_max"):
        try:
            sizes[name] = int(Path(f"/proc/sys/net/core/{name}").read_text())
        except (OSError, ValueError):
            return Finding("kernel buffers", True, "unknown")
    what = ", ".join(f"{name} {size >> 10} KiB" for name, size in sizes.items())
    if min(sizes.values()) < SOCKET_BUFFER_BYTES_MIN:
        mend = f"for long links: sysctl -w net.core.rmem_max={16 << 20} net.core.wmem_max={16 << 20}, as root"
        return Finding("kernel buffers", True, what, mend)
    return Finding("kernel buffers", True, what)


def check_stores(gateway: str | None, urls: Sequence[str], access: Access, show: Callable[[Finding], None]) -> int:
    """Check stores, and show each finding as soon as it is known. Return the exit code.

    Raises UsageError, GatewayError.
    """
    return store_findings(
        gateway, urls, access, lambda line: show(replace(_told(line["check"], line), store=line["url"]))
    )


def _told(name: str, line: dict[str, Any]) -> Finding:
    """Return the finding of a line of the gateway program."""
    level = line["level"]
    return Finding(
        name,
        level != "fail",
        line["message"],
        line.get("hint"),
        absent=level == "absent",
        doubtful=level == "warn",
    )


def _clouds(gateway: str | None, access: Access) -> Iterator[Finding]:
    """Check credentials and clocks through the gateway program, which uses them."""
    try:
        lines = clouds_findings(gateway, access)
    except TradewindError as error:
        yield Finding("credentials", False, str(error), error.hint or "install tradewind again")
        return
    for line in lines:
        yield _told(f"{line['url'].removesuffix('://')} {line['check']}", line)
    if not any(line["check"] == "clock" for line in lines):
        mend = "name a store: tradewind doctor URL, or --endpoint http://HOST:PORT"
        yield Finding("clock", True, "not compared: no cloud is configured here", mend, absent=True)
