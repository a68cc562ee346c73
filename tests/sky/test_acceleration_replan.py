"""A connection that is open while `tradewind accelerate replan` moves its flow to another path."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from tests.sky.test_accelerate import CLIENT, PATIENCE_S, running, states, until, up
from tests.sky.test_acceleration_entrances import OF_OFFICE, SMALL, TWO_HOSTS, flow_of

pytest.importorskip("tomllib")
pytestmark = pytest.mark.slow

PORT = 8002
WORD_BYTES = 8
CHUNK_WORDS = 2500
"""Numbers of one chunk. The server sends ten a second, slower than any path, so that nothing is buffered."""
SERVER = f"""
import itertools, os, socket, struct, sys, threading, time

def serve(client, stop):
    client.recv(65536)  # The kernel resets a connection that is closed with unread bytes.
    client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
    for first in itertools.count(0, {CHUNK_WORDS}):
        client.sendall(b"".join(struct.pack(">Q", first + number) for number in range({CHUNK_WORDS})))
        if os.path.exists(stop):
            return client.close()
        time.sleep(0.1)

with socket.create_server(("0.0.0.0", {PORT})) as server:
    while True:
        threading.Thread(target=serve, args=(server.accept()[0], sys.argv[1]), daemon=True).start()
"""
BOTH = SMALL.replace(":8000", f":{PORT}") + OF_OFFICE
#: The path without proxies is so short that they gain nothing.
DIRECT_HERE = BOTH.replace(f'source_region = "{CLIENT}"', f'source_region = "{CLIENT}"\nrtt_ms = 0.1', 1)
ONLY_HERE = DIRECT_HERE.removesuffix(OF_OFFICE)


@contextmanager
def in_sky(world: Command, machine: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on a machine of the sky, and end it."""
    enter = "sky", "exec", world.home / "sky.json", machine, "--"
    process = subprocess.Popen([str(world.binary), *map(str, enter), *words], env=world.full_environment())
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def endless(world: Command, state: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a download that runs until the file `stop` is there."""
    url, out = f"http://{flow_of(state, 'backup')['listen']}/", str(world.home / "received")
    words = "curl", "-s", "--no-buffer", "--retry", "9", "--retry-connrefused", "-o", out, url
    with in_sky(world, "client-1", *words) as curl:
        yield curl


def received(world: Command) -> int:
    """Return the bytes that the download has so far. Each is in its place."""
    content = Path(world.home / "received").read_bytes()
    whole = len(content) // WORD_BYTES
    assert content.startswith(b"".join(number.to_bytes(WORD_BYTES, "big") for number in range(whole)))
    return len(content)


def more_than(world: Command, least: int) -> int:
    """Wait until the download has more bytes."""
    end = time.monotonic() + PATIENCE_S
    while not (world.home / "received").exists() or received(world) <= least:
        assert time.monotonic() < end
        time.sleep(0.2)
    return received(world)


def replan(world: Command, flows: str) -> None:
    (world.home / "other.toml").write_text(flows)
    world.run("accelerate", "replan", "--flows", world.home / "other.toml").expect(0)


@pytest.fixture
def world(command: Command) -> Iterator[Command]:
    with (
        running(command, TWO_HOSTS, BOTH) as world,
        in_sky(world, "server-1", sys.executable, "-c", SERVER, str(world.home / "stop")),
    ):
        yield world


def test_it_keeps_its_path_and_its_bytes_while_new_ones_take_another(world: Command) -> None:
    state = up(world)
    (proxy,) = (each["name"] for each in state["proxies"])
    with endless(world, state) as curl:
        more_than(world, 100_000)
        before = until(world, lambda now: now["proxies"][0].get("bytes_down", 0) > 100_000)
        replan(world, DIRECT_HERE)
        after = states(world)[0]
        assert (flow_of(after, "backup")["through"], flow_of(after, "office")["through"]) == ([], [proxy])
        # Longer than a proxy drains that has left the plan.
        end = time.monotonic() + 15
        while time.monotonic() < end:
            more_than(world, received(world))
        now = until(world, lambda now: now["proxies"][0]["bytes_down"] > before["proxies"][0]["bytes_down"] + 1_000_000)
        assert now["proxies"][0]["open"] == 1 and flow_of(now, "backup")["through"] == []
        # A new connection is direct.
        url = f"http://{flow_of(now, 'backup')['listen']}/"
        with in_sky(world, "client-1", "curl", "-s", "-o", str(world.home / "second"), url):
            until(world, lambda now: flow_of(now, "backup").get("achieved_direct_mbps") is not None)
            assert states(world)[0]["proxies"][0]["open"] == 1
        (world.home / "stop").touch()
        assert curl.wait(PATIENCE_S) == 0
    assert received(world) % (CHUNK_WORDS * WORD_BYTES) == 0


def test_it_ends_with_a_reset_when_its_proxy_has_drained(world: Command) -> None:
    with endless(world, up(world)) as curl:
        at_first = more_than(world, 100_000)
        replan(world, ONLY_HERE)
        # An end that looks like a whole file would be worse than a failed transfer.
        assert curl.wait(PATIENCE_S) != 0
        assert received(world) > at_first
    assert not states(world)[0].get("proxies")
