"""Runs a command whose TCP connections to some destinations go through a split proxy.

A local proxy, `tradewind-gateway split`, gets the connections and passes those to the destinations on. As root on
Linux they are redirected to it (`tradewind.acceleration.redirect`), and the command notices nothing. Otherwise the
command gets proxy variables, which many programs honour.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.acceleration import redirect
from tradewind.acceleration.destinations import ALL_PATTERNS, Destination, read_destinations
from tradewind.acceleration.local_proxy import PROXY, LocalProxy, patterns_of, prepared, routed, transparent
from tradewind.acceleration.upstream import TOKEN_VARIABLE, Upstream
from tradewind.errors import GatewayError, UsageError
from tradewind.gateway.binary import find_gateway
from tradewind.model.records import dataclass

__all__ = ["MEANS", "AcceleratedRun", "run_accelerated"]

#: How connections get to the local proxy.
MEANS = ("auto", "redirect", "variables")
#: Exit codes of shells: the command cannot be executed, is not found, or was ended by a signal.
NOT_EXECUTABLE, NOT_FOUND, BY_SIGNAL = 126, 127, 128
#: Signals passed on to the command.
PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: Signals that a terminal sends to the command itself. They are passed on if they came from elsewhere.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
#: Variables that a program may read in place of those that are set.
VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class AcceleratedRun:
    """A command that has ended."""

    exit_code: int
    """That of the command; 128 and the signal if a signal ended it."""
    connections: int
    """Connections opened to the proxy."""
    sent_bytes: int
    received_bytes: int
    refused: Mapping[str, int]
    """Refused connections by cause (`tradewind_split::Cause`)."""


def run_accelerated(
    command: Sequence[str],
    upstream: Upstream,
    to: Sequence[str],
    *,
    by: str = "auto",
    refuse_quic: bool = False,
    gateway: str | None = None,
    note: Callable[[str], None] | None = None,
) -> AcceleratedRun:
    """Run a command to its end. Standard input, output and error are the command's.

    Args:
        command: the program and its arguments.
        upstream: the proxy.
        to: destinations that go through it, `HOST` or `HOST:PORT`; none: all.
        by: `redirect` (as root on Linux), `variables`, or `auto`: the first that is possible.
        refuse_quic: refuse UDP to port 443 of the destinations; only with `redirect`.
        gateway: path of the gateway program.
        note: gets a line if the command gets proxy variables because redirecting is not possible.

    Raises:
        UsageError: a destination is invalid or has no address, or `by` is not possible here.
        GatewayError: the local proxy or nft failed.
    """
    reason = redirect.why_not() if by != "variables" else None
    if reason and (by == "redirect" or refuse_quic):
        raise UsageError(f"connections cannot be redirected: {reason}", hint="run as root, or use --by variables")
    if by == "variables" and refuse_quic:
        raise UsageError("--refuse-quic needs --by redirect")
    redirects = by != "variables" and reason is None
    destinations = read_destinations(to, resolve=redirects)
    if reason and note is not None:
        note(f"{reason}, so the command gets proxy variables, which not all programs honour")
    binary = gateway or find_gateway()
    environment = _environment()
    with ExitStack() as stack:
        if redirects:
            local, group = _redirecting(stack, binary, upstream, destinations, refuse_quic=refuse_quic)
        else:
            local, group = stack.enter_context(LocalProxy(binary, _with_variables(upstream, destinations))), None
            others = {name: value for name, value in environment.items() if name.upper() not in VARIABLES}
            environment = {**others, **local.variables()}
        code = _run(command, environment, group)
        state = local.finish()
    opened = state["hops"].get(PROXY, {}).get("dialed", 0)
    through = [each for each in state["traffic"] if each["through"] == [PROXY]]
    sent, received = (sum(each[key] for each in through) for key in ("bytes_up", "bytes_down"))
    return AcceleratedRun(code, opened, sent, received, state["refused"])


def _redirecting(
    stack: ExitStack, binary: str, upstream: Upstream, destinations: Sequence[Destination], *, refuse_quic: bool
) -> tuple[LocalProxy, Path]:
    """Start the local proxy and redirect to it. Return it, and the file through which a process joins the group."""
    group = stack.enter_context(redirect.own_group())
    versions = sorted({address.version for one in destinations for address in one.addresses}) or ip_versions()
    local = stack.enter_context(LocalProxy(binary, transparent(upstream, destinations, versions)))
    ports = dict(zip(versions, local.ports, strict=True))
    stack.enter_context(redirect.redirected(group, destinations, ports, refuse_quic=refuse_quic))
    return local, group.path / "cgroup.procs"


def ip_versions() -> list[int]:
    """Return the versions of IP that this host has addresses of."""
    return [4, 6] if Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text() else [4]


def _with_variables(upstream: Upstream, destinations: Sequence[Destination]) -> dict[str, Any]:
    return {
        "listeners": [{"listen": "127.0.0.1:0", "way": way} for way in ("socks5", "connect")],
        # The variables bring all connections here, and those to other destinations go on directly.
        "allow": [*patterns_of(destinations), *ALL_PATTERNS],
        **routed(upstream, destinations),
    }


def _run(command: Sequence[str], environment: Mapping[str, str], group: Path | None) -> int:
    """Run the command, pass signals on to it, and return its exit code."""
    with _passing_signals() as started:
        try:
            process = subprocess.Popen(
                command, env=environment, preexec_fn=prepared(signal.SIGTERM, group), close_fds=False
            )
        except OSError as error:
            print(f"error: {command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        except subprocess.SubprocessError:
            raise GatewayError("the command cannot join its control group", hint="use --by variables") from None
        started(process)
        code = process.wait()
    return BY_SIGNAL - code if code < 0 else code


@contextmanager
def _passing_signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Pass signals on to the process that is given to the yielded function, also those that came before it started.

    Ignored signals stay ignored, as `nohup` requires.
    """
    running: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def passed(number: int, _frame: FrameType | None) -> None:
        if number in OF_TERMINAL and _at_terminal():
            return
        if running:
            running[0].send_signal(number)
        else:
            early.append(number)

    def started(process: subprocess.Popen[bytes]) -> None:
        running.append(process)
        for number in early:
            process.send_signal(number)

    before = {
        number: signal.signal(number, passed)
        for number in (*PASSED, *OF_TERMINAL)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, which then signals the command, too."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """Return this process's environment without the proxy's token."""
    return {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
