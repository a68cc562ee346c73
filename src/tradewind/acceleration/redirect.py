"""Redirects the TCP connections of one command on Linux: a control group marks its processes, and nftables its packets.

Nothing of it outlives this process for long. The table of nftables belongs to one `nft` process (`flags owner`), which
ends with its standard input, and the kernel removes the table with it. An empty control group that a killed run left is
removed by the next run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tradewind.acceleration.destinations import Destination
from tradewind.errors import GatewayError
from tradewind.model.records import dataclass

__all__ = ["GATEWAYS", "Group", "own_group", "redirected", "why_not"]

#: The place that nft looks control groups up in.
GROUPS = Path("/sys/fs/cgroup")
#: Beginning of the names of control groups and tables; the process id follows.
PREFIX = "tradewind-run-"
#: The same of control groups whose connections nothing redirects.
GATEWAYS = "tradewind-gateways-"
#: Attempts to load rules with the control groups of other processes, which may end meanwhile.
TRIES_MAX = 3
#: Timeout for nft to load the rules [s], and time between looks.
LOADED_S, LOOK_S = 10.0, 0.02
QUIC_PORT = 443


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of version 2."""

    path: Path

    @property
    def match(self) -> str:
        """The expression of nftables that matches the packets of its processes. Needs the group to exist."""
        within = self.path.relative_to(GROUPS)
        level = len(self.path.relative_to(_mount()).parts)
        return f'socket cgroupv2 level {level} "{within}"'

    def add(self, pid: int) -> None:
        """Move a process into the group; its open connections stay as they are. Raises GatewayError."""
        try:
            (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise GatewayError(f"process {pid} cannot join {self.path}: {error.strerror}") from None


def why_not() -> str | None:
    """Return why this process cannot redirect connections, or None if it seems that it can."""
    if os.geteuid() != 0:
        return "redirecting needs root"
    if shutil.which("nft") is None:
        return "nft of nftables is not installed"
    try:
        _mount()
    except GatewayError as error:
        return str(error)
    return None


def _mount() -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and Path(place).is_relative_to(GROUPS):
            return Path(place)
    raise GatewayError(f"no control groups (version 2) below {GROUPS}")


@contextmanager
def own_group(prefix: str = PREFIX) -> Iterator[Group]:
    """Make a control group below this process's own, and remove it if its processes have ended. Raises GatewayError."""
    within = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), "/")
    parent = _mount() / within.lstrip("/")
    _sweep(parent)
    path = parent / f"{prefix}{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        raise GatewayError(f"{path}: {error.strerror}", hint="use --by variables") from None
    try:
        yield Group(path)
    finally:
        # A process that the command left in the background keeps it until the next run.
        with suppress(OSError):
            path.rmdir()


def _lines(path: str) -> Sequence[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def _sweep(parent: Path) -> None:
    """Remove the groups that killed runs left, also of one that had this process's id.

    The kernel refuses to remove one that has processes.
    """
    for left in (*parent.glob(f"{PREFIX}*"), *parent.glob(f"{GATEWAYS}*")):
        pid = left.name.rpartition("-")[2]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            with suppress(OSError):
                left.rmdir()


def _gateway_groups(own: Group) -> list[Group]:
    """Return the own group, and those of GATEWAYS of all processes of this host."""
    paths = (Path(path) for path, _, _ in os.walk(_mount()))
    return [own, *(Group(path) for path in paths if path.name.startswith(GATEWAYS) and path != own.path)]


@contextmanager
def redirected(
    group: Group,
    destinations: Sequence[Destination],
    ports: Mapping[int, int],
    *,
    refuse_quic: bool = False,
    others: bool = False,
    enter: Sequence[str] = (),
) -> Iterator[None]:
    """Redirect connections of this machine's processes to local ports within the block.

    Args:
        group: the processes whose connections are redirected; with `others`, whose are not. Then those of other groups
            of GATEWAYS are not redirected either: two processes that redirect the same destination would send each
            connection to each other without end.
        destinations: redirected destinations; none: all but this machine's own addresses.
        ports: local port by version of IP (4, 6).
        refuse_quic: refuse UDP to port 443 of these destinations, so that clients of QUIC use TCP.
        enter: prefix of commands that run in the network whose connections are redirected.

    Raises:
        GatewayError: nft is missing, or refuses the rules.
    """
    table = f"{PREFIX}{os.getpid()}"
    for _ in range(TRIES_MAX):
        exempt = _gateway_groups(group) if others else []
        rules = _rules(table, group, destinations, ports, refuse_quic=refuse_quic, exempt=exempt)
        checked = _nft([*enter, "nft", "-c", "-f", "-"], rules)
        if checked.returncode == 0:
            break
    if checked.returncode:
        raise GatewayError(f"nft refuses the rules: {_first(checked.stderr)}", hint="use --by variables")
    # Its own session, because Ctrl-C at the terminal is for the command.
    holder = subprocess.Popen(
        [*enter, "nft", "-i"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert holder.stdin is not None
    try:
        with suppress(BrokenPipeError):
            holder.stdin.write(rules)
            holder.stdin.flush()
        _await(holder, [*enter, "nft", "list", "chain", "inet", table, "loaded"])
        yield
    finally:
        with suppress(BrokenPipeError):
            holder.stdin.close()
        holder.wait()


def _rules(
    table: str,
    group: Group,
    destinations: Sequence[Destination],
    ports: Mapping[int, int],
    *,
    refuse_quic: bool,
    exempt: Sequence[Group],
) -> str:
    """Return the commands of nft, one a line. The last one makes the chain that shows that all are loaded.

    They redirect the group, or all processes but the `exempt` groups if there are some.
    """
    lines = [
        f"add table inet {table} {{ flags owner; }}",
        f"add chain inet {table} to_proxy {{ type nat hook output priority -100; }}",
        f"add chain inet {table} no_quic {{ type filter hook output priority 0; }}",
    ]
    who = "" if exempt else f"{group.match} "
    # Not `!=`: that matches no process whose control group is nearer to the root.
    lines += [f"add rule inet {table} to_proxy {one.match} return" for one in exempt]
    for version, port in ports.items():
        for to, dport in _targets(version, destinations):
            tcp = "meta l4proto tcp" if dport is None else f"tcp dport {dport}"
            lines.append(f"add rule inet {table} to_proxy {who}{to} {tcp} redirect to :{port}")
            if refuse_quic and dport in (None, QUIC_PORT):
                lines.append(f"add rule inet {table} no_quic {who}{to} udp dport {QUIC_PORT} reject")
    return "\n".join([*lines, f"add chain inet {table} loaded", ""])


def _targets(version: int, destinations: Sequence[Destination]) -> Iterator[tuple[str, int | None]]:
    """Yield the expression for the addresses, and the port, of each rule."""
    if not destinations:
        yield f"meta nfproto ipv{version} fib daddr type != local", None
    family = "ip" if version == 4 else "ip6"
    for destination in destinations:
        addresses = [str(address) for address in destination.addresses if address.version == version]
        if addresses:
            yield f"{family} daddr {{ {', '.join(addresses)} }}", destination.port


def _await(holder: subprocess.Popen[str], look: Sequence[str]) -> None:
    deadline_s = time.monotonic() + LOADED_S
    while holder.poll() is None and time.monotonic() < deadline_s:
        if _nft(look).returncode == 0:
            return
        time.sleep(LOOK_S)
    raise GatewayError("nft did not load the rules", hint="use --by variables")


def _nft(words: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False)


def _first(text: str) -> str:
    return text.strip().partition("\n")[0] or "no reason given"
