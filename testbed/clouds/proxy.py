"""An HTTP proxy that forwards requests and opens tunnels (CONNECT): tinyproxy, from Debian's package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.clouds.debian_packages import unpacked
from testbed.servers.process import free_port, spawn, stop_group, wait_until_answering

__all__ = ["ForwardProxy", "forward_proxy"]


@dataclass(frozen=True)
class ForwardProxy:
    """A running proxy at `address` and `port`."""

    address: str
    port: int
    log: Path

    @property
    def url(self) -> str:
        """The URL that programs get in `https_proxy`."""
        return f"http://{self.address}:{self.port}"

    def requests(self, method: str) -> list[str]:
        """Return the log's lines of requests with this method."""
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if f": {method} " in line]


@contextmanager
def forward_proxy(address: str, folder: Path) -> Iterator[ForwardProxy]:
    """Run a proxy at this address of this host. Raises InstallError if it cannot be downloaded."""
    program = unpacked("tinyproxy-1", ["tinyproxy-bin"]) / "usr/bin/tinyproxy"
    folder.mkdir(parents=True)
    port, settings = free_port(), folder / "tinyproxy.conf"
    # Without ConnectPort and Allow, it opens tunnels to all ports, for everybody.
    settings.write_text(
        f"Listen {address}\nPort {port}\nTimeout 60\nMaxClients 500\nLogLevel Connect\n", encoding="ascii"
    )
    process = spawn([str(program), "-d", "-c", str(settings)], folder)
    try:
        proxy = ForwardProxy(address, port, folder / "log")
        wait_until_answering(process, proxy.url, folder)
        yield proxy
    finally:
        stop_group(process)
