"""Runs a command whose TCP connections to some destinations go through a split proxy.

A local proxy, `tradewind-gateway split`, gets the connections and passes those to the destinations on. As root on
Linux they are redirected to it (`tradewind.acceleration.redirect`), and the command notices nothing. Otherwise the
command gets proxy variables, which many programs honour.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tradewind.acceleration import redirect
from tradewind.acceleration.destinations import ALL_PATTERNS, Destination, names_of, read_destinations
from tradewind.acceleration.proxies import STOP_S, first_line
from tradewind.acceleration.upstream import TOKEN_VARIABLE, Upstream
from tradewind.errors import GatewayError, UsageError
from tradewind.gateway.binary import find_gateway
from tradewind.model.records import dataclass

__all__ = ["MEANS", "AcceleratedRun", "run_accelerated"]

#: How connections get to the local proxy.
MEANS = ("auto", "redirect", "variables")
#: Name of the proxy in the local proxy's configuration, and of the user of its own way in.
PROXY, USER = "proxy", "run"
#: Flows that the command's end left get this time to end.
DRAIN_MS = 1_000
#: Exit codes of shells: the command cannot be executed, is not found, or was ended by a signal.
NOT_EXECUTABLE, NOT_FOUND, BY_SIGNAL = 126, 127, 128
#: Signals passed on to the command.
PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: Signals that a terminal sends to the command itself. They are passed on if they came from elsewhere.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
PR_SET_PDEATHSIG = 1
#: Programs connect to these directly, whatever the proxy variables say.
NO_PROXY = "localhost,127.0.0.1,::1"
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
            local, group = stack.enter_context(_LocalProxy(binary, _with_variables(upstream, destinations))), None
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
) -> tuple[_LocalProxy, Path]:
    """Start the local proxy and redirect to it. Return it, and the file through which a process joins the group."""
    group = stack.enter_context(redirect.own_group())
    versions = sorted({address.version for one in destinations for address in one.addresses}) or _versions()
    local = stack.enter_context(_LocalProxy(binary, _transparent(upstream, destinations, versions)))
    ports = dict(zip(versions, local.ports, strict=True))
    stack.enter_context(redirect.redirected(group.match, destinations, ports, refuse_quic=refuse_quic))
    return local, group.path / "cgroup.procs"


def _versions() -> list[int]:
    """Return the versions of IP that this host has addresses of."""
    return [4, 6] if Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text() else [4]


def _transparent(upstream: Upstream, destinations: Sequence[Destination], versions: Sequence[int]) -> dict[str, Any]:
    hosts = {4: "127.0.0.1", 6: "[::1]"}
    return {
        "listeners": [{"listen": f"{hosts[version]}:0", "way": "transparent"} for version in versions],
        "names": names_of(destinations),
        "allow": _patterns(destinations) or ALL_PATTERNS,
        **_routed(upstream, destinations),
    }


def _with_variables(upstream: Upstream, destinations: Sequence[Destination]) -> dict[str, Any]:
    return {
        "listeners": [{"listen": "127.0.0.1:0", "way": way} for way in ("socks5", "connect")],
        # The variables bring all connections here, and those to other destinations go on directly.
        "allow": [*_patterns(destinations), *ALL_PATTERNS],
        **_routed(upstream, destinations),
    }


def _patterns(destinations: Sequence[Destination]) -> list[str]:
    return [pattern for one in destinations for pattern in one.patterns()]


def _routed(upstream: Upstream, destinations: Sequence[Destination]) -> Mapping[str, Any]:
    return {
        "upstreams": {PROXY: upstream.document()},
        "routes": [{"destination": pattern, "through": [PROXY]} for pattern in _patterns(destinations)],
        "default_route": [] if destinations else [PROXY],
        "limits": {"drain_timeout_ms": DRAIN_MS},
    }


class _LocalProxy:
    """A process of `tradewind-gateway split`. As a context it ends at the end of the block, or with this process."""

    def __init__(self, binary: str, document: dict[str, Any]) -> None:
        self._words = [binary, "split", "--config", "-"]
        self._document = document
        self._token = secrets.token_urlsafe(32)
        #: Ports of its listeners.
        self.ports: list[int] = []

    def __enter__(self) -> _LocalProxy:
        with ExitStack() as stack:
            tokens = [stack.enter_context(self._tokens(one)) for one in self._document["listeners"]]
            # Its own session, because Ctrl-C at the terminal is for the command.
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[descriptor for descriptor in tokens if descriptor is not None],
                start_new_session=True,
                preexec_fn=_prepared(signal.SIGTERM),
            )
            try:
                self._configure()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def variables(self) -> Mapping[str, str]:
        """Return proxy variables, in capitals and small letters, as programs read one or the other."""
        socks, connect = (
            f"{scheme}://{USER}:{self._token}@127.0.0.1:{port}"
            for scheme, port in zip(("socks5h", "http"), self.ports, strict=True)
        )
        given = {"ALL_PROXY": socks, "HTTPS_PROXY": connect, "NO_PROXY": NO_PROXY}
        return given | {name.lower(): value for name, value in given.items()}

    def finish(self) -> Mapping[str, Any]:
        """End the process when its flows have ended, and return its state. Raises GatewayError."""
        self._process.terminate()
        try:
            out, _ = self._process.communicate(timeout=STOP_S)
            state: Mapping[str, Any] = json.loads(out)
        except (subprocess.TimeoutExpired, ValueError):
            raise GatewayError("the local proxy ended without reporting its counts") from None
        return state

    @contextmanager
    def _tokens(self, listener: dict[str, Any]) -> Iterator[int | None]:
        """Yield a descriptor with the hash of the token, or None for redirected clients, which have no token."""
        if listener["way"] == "transparent":
            yield None
            return
        read, write = os.pipe()
        with open(read, "rb"), open(write, "w", encoding="utf-8") as tokens:
            tokens.write(f"{USER}:{hashlib.sha256(self._token.encode()).hexdigest()}\n")
            tokens.close()
            listener["tokens"] = f"/dev/fd/{read}"
            yield read

    def _configure(self) -> None:
        assert self._process.stdin is not None
        # A program that has ended at once says why on standard error, and prints no line.
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            json.dump(self._document, stdin)
        # It is closed, which `communicate` would not expect.
        self._process.stdin = None
        listening = json.loads(first_line(self._process, "the local proxy"))["listening"]
        self.ports = [int(address.rpartition(":")[2]) for address in listening]


def _prepared(at_our_end: signal.Signals, group: Path | None = None) -> Callable[[], None] | None:
    """Return what a child does before it executes its program: join a control group, and ask for a signal at our end.

    Only Linux has either. The function must not import, because another thread may hold the lock of imports.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(at_our_end), 0, 0, 0)
        if group is not None:
            with open(group, "w", encoding="ascii") as file:
                file.write("0")

    return prepare


def _run(command: Sequence[str], environment: Mapping[str, str], group: Path | None) -> int:
    """Run the command, pass signals on to it, and return its exit code."""
    with _passing_signals() as started:
        try:
            process = subprocess.Popen(
                command, env=environment, preexec_fn=_prepared(signal.SIGTERM, group), close_fds=False
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
