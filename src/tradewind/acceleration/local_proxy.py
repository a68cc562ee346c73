"""The local proxy: a process of `tradewind-gateway split` that gets connections of programs and passes them to a proxy.

It ends with this process, even if this one is killed.
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
from typing import Any

from tradewind.acceleration.destinations import ALL_PATTERNS, Destination, names_of
from tradewind.acceleration.proxies import STOP_S, first_line
from tradewind.acceleration.upstream import Upstream
from tradewind.errors import GatewayError
from tradewind.model.files import open_private

__all__ = ["NO_PROXY", "PROXY", "LocalProxy", "patterns_of", "prepared", "routed", "transparent"]

#: Name of the proxy in the local proxy's configuration, and of the user of its own way in.
PROXY, USER = "proxy", "run"
#: Flows that the command's end left get this time to end.
DRAIN_MS = 1_000
PR_SET_PDEATHSIG = 1
#: Programs connect to these directly, whatever the proxy variables say.
NO_PROXY = "localhost,127.0.0.1,::1"


def transparent(upstream: Upstream, destinations: Sequence[Destination], versions: Sequence[int]) -> dict[str, Any]:
    """Return the configuration of a local proxy to which connections are redirected, a listener per version of IP."""
    hosts = {4: "127.0.0.1", 6: "[::1]"}
    return {
        "listeners": [{"listen": f"{hosts[version]}:0", "way": "transparent"} for version in versions],
        "names": names_of(destinations),
        "allow": patterns_of(destinations) or ALL_PATTERNS,
        **routed(upstream, destinations),
    }


def patterns_of(destinations: Sequence[Destination]) -> list[str]:
    """Return the patterns of the gateway program for all names and addresses of destinations."""
    return [pattern for one in destinations for pattern in one.patterns()]


def routed(upstream: Upstream, destinations: Sequence[Destination]) -> Mapping[str, Any]:
    """Return the part of the configuration by which destinations, or all without any, go through the proxy."""
    return {
        "upstreams": {PROXY: upstream.document()},
        "routes": [{"destination": pattern, "through": [PROXY]} for pattern in patterns_of(destinations)],
        "default_route": [] if destinations else [PROXY],
        "limits": {"drain_timeout_ms": DRAIN_MS},
    }


class LocalProxy:
    """A process of `tradewind-gateway split`. As a context it ends at the end of the block, or with this process."""

    def __init__(
        self, binary: str, document: dict[str, Any], enter: Sequence[str] = (), log: Path | None = None
    ) -> None:
        """`enter` is a prefix of commands that run in the network where it is to listen. `log` gets its errors."""
        self._log = log
        self._words = [*enter, binary, "split", "--config", "-"]
        self._document = document
        self._token = secrets.token_urlsafe(32)
        #: Ports of its listeners.
        self.ports: list[int] = []

    def __enter__(self) -> LocalProxy:
        with ExitStack() as stack:
            tokens = [stack.enter_context(self._tokens(one)) for one in self._document["listeners"]]
            # Its own session, because Ctrl-C at the terminal is for the command.
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._log is None else stack.enter_context(open(self._log, "ab", opener=open_private)),
                text=True,
                pass_fds=[descriptor for descriptor in tokens if descriptor is not None],
                start_new_session=True,
                preexec_fn=prepared(signal.SIGTERM),
            )
            try:
                self._configure()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def drain(self) -> None:
        """Ask it to accept no connections, and to end when its open ones have, without waiting."""
        self._process.terminate()

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


def prepared(at_our_end: signal.Signals, group: Path | None = None) -> Callable[[], None] | None:
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
