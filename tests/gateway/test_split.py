"""Split proxies as real processes, with identities that the gateway program makes."""

import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tradewind.gateway.binary import find_gateway

BINARY = find_gateway()
PATIENCE_S = 20.0
MANY_BYTES = 64 << 20


class SplitProxy:
    """One process; `address` is that of its first listener."""

    def __init__(self, config: dict[str, Any]) -> None:
        command = [BINARY, "split", "--config", "-"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.process.stdin as stdin:
            json.dump(config, stdin)
        # It is closed, which `communicate` would not expect.
        self.process.stdin = None
        host, port = json.loads(self.process.stdout.readline())["listening"][0].rsplit(":", 1)
        self.host, self.port = host, int(port)
        self.address = f"{host}:{port}"

    def stop(self) -> dict[str, Any]:
        """Stop the process, and return the state that it prints."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        status: dict[str, Any] = json.loads(out)
        return status


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, config: dict[str, Any]) -> SplitProxy:
    proxy = SplitProxy(config)
    assert proxy.process.stdout is not None
    stack.enter_context(proxy.process.stdout)
    stack.callback(proxy.process.wait)
    stack.callback(proxy.process.kill)
    return proxy


def destination(stack: ExitStack) -> tuple[socket.socket, str]:
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    server.settimeout(PATIENCE_S)
    return server, f"127.0.0.1:{server.getsockname()[1]}"


def chain(stack: ExitStack, tmp_path: Path, to: str, **settings: Any) -> tuple[SplitProxy, SplitProxy]:
    """Start an exit, and an entry that forwards to `to` through it."""
    subprocess.run([BINARY, "identity", "--out", tmp_path / "fleet", "--name", "entry", "exit"], check=True)
    hop = {"listeners": [{"listen": "127.0.0.1:0", "way": "hop"}], "allow": [to], **settings}
    exit_ = started(stack, {**hop, "identity": str(tmp_path / "fleet" / "exit")})
    forward = {"listen": "127.0.0.1:0", "way": "forward", "destination": to}
    entry = {
        "listeners": [forward],
        "identity": str(tmp_path / "fleet" / "entry"),
        "proxies": {"exit": exit_.address},
        "routes": [{"destination": to, "through": ["exit"]}],
        "allow": [to],
        **settings,
    }
    return started(stack, entry), exit_


def test_two_processes_carry_a_flow_over_mutual_tls(stack: ExitStack, tmp_path: Path) -> None:
    server, to = destination(stack)
    entry, exit_ = chain(stack, tmp_path, to)
    client = stack.enter_context(socket.create_connection((entry.host, entry.port), PATIENCE_S))
    accepted, _ = server.accept()
    stack.enter_context(accepted)
    accepted.settimeout(PATIENCE_S)
    block = os.urandom(1 << 20)

    def send() -> None:
        for _ in range(MANY_BYTES // len(block)):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    with accepted.makefile("rb") as stream:
        for _ in range(MANY_BYTES // len(block)):
            assert stream.read(len(block)) == block
        assert stream.read(1) == b""
    sender.join()
    accepted.sendall(b"done")
    accepted.shutdown(socket.SHUT_WR)
    assert client.recv(10, socket.MSG_WAITALL) == b"done"
    for proxy in (entry, exit_):
        status = proxy.stop()
        assert (status["bytes_up"], status["bytes_down"], status["refused"]) == (MANY_BYTES, 4, {})
        assert (status["closed"], status["reset"]) == (1, 0)


@pytest.mark.parametrize("config", ["{", '{"listeners": [], "allow": []}'])
def test_a_bad_configuration_is_one_error_with_a_hint(config: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    done = subprocess.run([BINARY, "split", "--config", path], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stderr.startswith("error: configuration")
    assert done.stderr.endswith("hint: correct the configuration\n")


def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["curl", "--silent", "--show-error", "--max-time", str(PATIENCE_S), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_PROXY": ""})


@pytest.mark.parametrize(("way", "scheme"), [("socks5", "socks5h"), ("connect", "http")])
def test_curl_fetches_a_page_with_a_token_and_says_when_it_is_refused(
    way: str, scheme: str, stack: ExitStack, tmp_path: Path
) -> None:
    server, to = destination(stack)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann:{hashlib.sha256(b'secret').hexdigest()}\n")
    listener = {"listen": "127.0.0.1:0", "way": way, "tokens": str(tokens)}
    proxy = started(stack, {"listeners": [listener], "allow": [to]})

    def answer() -> None:
        accepted, _ = server.accept()
        with accepted, accepted.makefile("rb") as request:
            while request.readline().strip():
                pass
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    thread = threading.Thread(target=answer)
    thread.start()
    through = ["--proxytunnel", "--proxy", f"{scheme}://ann:secret@{proxy.address}"]
    assert curl(*through, f"http://{to}/").stdout == "hello"
    thread.join()
    elsewhere = curl(*through, "http://127.0.0.1:9/")
    assert elsewhere.returncode != 0
    stranger = curl("--proxytunnel", "--proxy", f"{scheme}://ann:wrong@{proxy.address}", f"http://{to}/")
    assert stranger.returncode != 0
    assert proxy.stop()["refused"] == {"not_allowed": 1, "unauthenticated": 1}


def test_a_stop_waits_for_flows_and_a_second_one_does_not(stack: ExitStack, tmp_path: Path) -> None:
    server, to = destination(stack)
    entry, exit_ = chain(stack, tmp_path, to)
    client = stack.enter_context(socket.create_connection((entry.host, entry.port), PATIENCE_S))
    accepted, _ = server.accept()
    stack.enter_context(accepted)
    exit_.process.terminate()
    while True:
        try:
            socket.create_connection((exit_.host, exit_.port), PATIENCE_S).close()
        except ConnectionError:
            break
    client.sendall(b"still")
    assert accepted.recv(5, socket.MSG_WAITALL) == b"still"
    assert exit_.stop()["closed"] == 0
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_one_client_has_its_bytes_per_second_whatever_its_connections(stack: ExitStack, tmp_path: Path) -> None:
    server, to = destination(stack)
    limit = 2_000_000
    limits = {"bytes_per_second_per_client_max": limit}
    entry, _ = chain(stack, tmp_path, to, limits=limits)

    def connected(address: str) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection((entry.host, entry.port), PATIENCE_S, source_address=(address, 0))
        accepted, _ = server.accept()
        for each in (client, accepted):
            stack.enter_context(each)
            each.settimeout(PATIENCE_S)
        return client, accepted

    def sent(pairs: list[tuple[socket.socket, socket.socket]], count: int) -> float:
        """Send so many bytes over each connection at once; return the time until all have arrived."""
        senders = [threading.Thread(target=client.sendall, args=(bytes(count),)) for client, _ in pairs]
        began_s = time.monotonic()
        for sender in senders:
            sender.start()
        readers = [threading.Thread(target=_read, args=(accepted, count)) for _, accepted in pairs]
        for reader in readers:
            reader.start()
        for thread in (*senders, *readers):
            thread.join(PATIENCE_S)
        return time.monotonic() - began_s

    greedy = [connected("127.0.0.2") for _ in range(4)]
    # 4 s at the limit, less the burst of 250 ms and the last reads, which wait for nothing.
    assert sent(greedy, limit) >= 3.0
    # Another client has its own, although the first one still owes time.
    assert sent([connected("127.0.0.3")], limit // 10) < 2.0


def _read(connection: socket.socket, count: int) -> None:
    with connection.makefile("rb") as stream:
        assert len(stream.read(count)) == count
