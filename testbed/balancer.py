"""A plain TCP balancer, HAProxy, in front of servers at loopback ports."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers.process import spawn

__all__ = ["start_balancer"]

SETTINGS = """
defaults
  mode tcp
  timeout connect 1s
  timeout check 2s
  timeout client {idle_s}s
  timeout server {idle_s}s
  option redispatch
  retries 3
frontend api
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance roundrobin
{probe}
  default-server check inter {interval_ms}ms fall {fall} rise 1 on-marked-down shutdown-sessions
{servers}
"""


def start_balancer(
    port: int,
    servers: Sequence[int],
    folder: Path,
    *,
    probe: str | None = None,
    idle_s: int = 60,
    interval_ms: int = 200,
    fall: int = 1,
) -> subprocess.Popen[bytes]:
    """Start a balancer at a loopback port. The caller ends it with `stop_group`. Raises InstallError.

    A server is up if it accepts connections, or with `probe` if it answers this path. It is looked at each
    `interval_ms`, and is down after `fall` looks. Connections without data end after `idle_s`.
    """
    text = SETTINGS.format(
        port=port,
        idle_s=idle_s,
        probe="" if probe is None else f"  option httpchk GET {probe}",
        interval_ms=interval_ms,
        fall=fall,
        servers="\n".join(f"  server s{one} 127.0.0.1:{one}" for one in servers),
    )
    settings = folder / "haproxy.cfg"
    settings.write_text(text)
    return spawn([debian_program("haproxy"), "-db", "-f", str(settings)], folder)
