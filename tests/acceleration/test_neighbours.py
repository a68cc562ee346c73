"""Processes that listen beside this one: a proxy on this host must not have its own connections redirected to it."""

import os
import socket
import subprocess
import sys

import pytest

from tradewind.acceleration.neighbours import listeners_at

LISTENER = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0), family=int(sys.argv[2]))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="redirecting needs Linux")
@pytest.mark.parametrize(
    ("listen", "family", "host"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1"),
        ("0.0.0.0", socket.AF_INET, "127.0.0.1"),
        ("::", socket.AF_INET6, "[::1]"),
    ],
)
def test_a_listener_of_this_network_is_found(listen: str, family: int, host: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, listen, str(int(family))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            pytest.skip(f"no sockets of {listen}")
        assert listeners_at(f"{host}:{port}", os.getpid()) == [process.pid]
        assert listeners_at(f"203.0.113.7:{port}", os.getpid()) == [], "the same port of another host"
        process.communicate("")
