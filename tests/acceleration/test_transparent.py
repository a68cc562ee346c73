"""The way in `transparent` with a proxy on the same host and network: its own connections are not redirected."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tradewind.acceleration import redirect
from tradewind.acceleration.transparent import TransparentWay
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.skipif(redirect.why_not() is not None, reason=f"{redirect.why_not()}")

#: Listens as a proxy does, and says for each line of input what it reads from the destination.
PROXY = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
for line in sys.stdin:
    try:
        with socket.create_connection(("127.0.0.1", int(line)), 5) as connection:
            print(connection.recv(100) or b"nothing", flush=True)
    except OSError as error:
        print(error, flush=True)
"""


@pytest.fixture
def proxy() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", PROXY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate("")


def test_the_connections_of_a_proxy_on_this_host_reach_the_destination(
    proxy: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert proxy.stdin is not None and proxy.stdout is not None
    at = proxy.stdout.readline().strip()
    with socket.create_server(("127.0.0.1", 0)) as destination, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        destination.settimeout(10)
        port = destination.getsockname()[1]
        helper = subprocess.Popen(["sleep", "60"], start_new_session=True)
        try:
            with closing(TransparentWay(find_gateway(), (), helper.pid, tmp_path / "log")) as way:
                way.set([f"127.0.0.1:{port}"], f"127.0.0.1:{nobody.getsockname()[1]}")
                proxy.stdin.write(f"{port}\n")
                proxy.stdin.flush()
                assert "hello" not in proxy.stdout.readline(), "it is redirected to the local proxy"
                way.exempt([f"127.0.0.1:{at}"])
                proxy.stdin.write(f"{port}\n")
                proxy.stdin.flush()
                with destination.accept()[0] as accepted:
                    accepted.sendall(b"hello")
                    assert "hello" in proxy.stdout.readline()
        finally:
            helper.kill()
            helper.wait()


def children() -> set[int]:
    own = os.getpid()
    return {int(pid) for task in os.listdir(f"/proc/{own}/task") for pid in _words(f"/proc/{own}/task/{task}/children")}


def _words(path: str) -> list[str]:
    return Path(path).read_text(encoding="ascii").split()


def test_a_former_local_proxy_is_released_once_it_has_ended(tmp_path: Path) -> None:
    helper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with closing(TransparentWay(find_gateway(), (), helper.pid, tmp_path / "log")) as way:
            before = children()
            way.set(["192.0.2.1:80"], "127.0.0.1:1")
            former = children() - before
            way.set(["192.0.2.2:80"], "127.0.0.1:1")
            for pid in former & children():
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            way.set(["192.0.2.3:80"], "127.0.0.1:1")
            assert former and not former & children()
    finally:
        helper.kill()
        helper.wait()
