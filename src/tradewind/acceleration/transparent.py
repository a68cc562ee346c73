"""The way in `transparent` of an acceleration: this machine's connections to its destinations go to a local proxy.

nftables redirects the connections of all processes but gateways: that at home connects to the same destinations where a
path is direct, and so do proxies on this host and those of other accelerations. Redirected, their connections would
return to them without end. The table and the local proxy end with this process, so connections are direct again if it
is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tradewind.acceleration import redirect
from tradewind.acceleration.destinations import Destination, read_destinations
from tradewind.acceleration.local_proxy import LocalProxy, transparent
from tradewind.acceleration.neighbours import listeners_at
from tradewind.acceleration.upstream import Upstream
from tradewind.errors import UsageError

__all__ = ["TransparentWay", "require_redirects"]

#: Time that open connections have after other destinations replaced theirs.
DRAIN_MS = 10_000


def require_redirects() -> None:
    """Raise UsageError if this process cannot redirect connections."""
    if reason := redirect.why_not():
        raise UsageError(
            f'way_in "transparent": {reason}', hint='run as root, or use way_in = "run" and `tradewind accelerate run`'
        )


class TransparentWay:
    """Redirects connections until `close`. `enter` is a command prefix for the network of the gateway at home."""

    def __init__(self, binary: str, enter: Sequence[str], home_pid: int, log: Path) -> None:
        """Keep the gateway at home, `home_pid`, out of what will be redirected. `log` gets the local proxy's lines.

        Raises GatewayError.
        """
        self._binary, self._enter, self._log = binary, tuple(enter), log
        #: Holds the control group.
        self._stack = ExitStack()
        #: Holds the present rules.
        self._rules = ExitStack()
        self._local: LocalProxy | None = None
        #: Former local proxies, until their connections have ended.
        self._draining: list[LocalProxy] = []
        self._done: tuple[tuple[str, ...], str] | None = None
        self._home_pid = home_pid
        #: Processes that joined the group after the gateway at home.
        self._exempt: set[int] = set()
        self._group = self._stack.enter_context(redirect.own_group(redirect.GATEWAYS))
        try:
            for pid in _group_of(home_pid):
                self._group.add(pid)
        except BaseException:
            self._stack.close()
            raise

    def exempt(self, proxies: Iterable[str]) -> None:
        """Keep the proxies at these addresses, `HOST:PORT`, out of what is redirected, if they share this network.

        Raises UsageError for a proxy whose process is not visible, and GatewayError.
        """
        for address in proxies:
            for pid in listeners_at(address, self._home_pid):
                if pid not in self._exempt:
                    self._group.add(pid)
                    self._exempt.add(pid)

    def set(self, targets: Sequence[str], entry: str) -> None:
        """Redirect connections to `targets`, `HOST:PORT`, from now on. `entry` is the SOCKS5 listener at home.

        Open connections of a former call may end within DRAIN_MS. A name counts by the addresses that it has now.
        Raises UsageError, GatewayError.
        """
        if self._done == (tuple(targets), entry):
            return
        destinations = read_destinations(targets, resolve=True)
        self.pause()
        self._retire()
        if targets:
            self._redirect(destinations, entry)
        self._done = tuple(targets), entry

    def pause(self) -> None:
        """Redirect no new connections; open ones stay."""
        self._rules.close()
        self._done = None

    def _retire(self) -> None:
        """Let the present local proxy drain, and release those that have ended."""
        if self._local is not None:
            self._local.drain()
            self._draining.append(self._local)
            self._local = None
        ended = [local for local in self._draining if local.has_ended]
        self._draining = [local for local in self._draining if local not in ended]
        for local in ended:
            local.close()

    def _redirect(self, destinations: Sequence[Destination], entry: str) -> None:
        versions: list[int] = sorted({address.version for one in destinations for address in one.addresses})
        document = transparent(Upstream("socks5h", entry, None, None), destinations, versions)
        document["limits"] = {"drain_timeout_ms": DRAIN_MS}
        self._local = LocalProxy(self._binary, document, self._enter, self._log).__enter__()
        ports = dict(zip(versions, self._local.ports, strict=True))
        self._rules.enter_context(redirect.redirected(self._group, destinations, ports, others=True, enter=self._enter))

    def close(self) -> None:
        """Redirect nothing any more. May be called more than once."""
        self._rules.close()
        for local in (*self._draining, *([] if self._local is None else [self._local])):
            local.close()
        self._draining, self._local = [], None
        self._stack.close()


def _group_of(leader: int) -> list[int]:
    """Return the processes of a process group: the gateway, and a command that entered a network for it."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getpgid(int(name)) == leader:
                found.append(int(name))
        except ProcessLookupError:
            continue
    return found
