"""`tradewind accelerate run` in a sky: connections to the named destination come from the proxy's machine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from tests.gateway.test_accelerate_run import redirecting
from tests.sky.conftest import Make
from tradewind.acceleration.proxies import proxy_chain, stop
from tradewind.sky.running import Sky

__all__ = ["redirecting"]

CLIENT, PROXY, SERVER = "client-1", "between-1", "server-1"
NAMED_PORT, OTHER_PORT = 8000, 8001


def serving(sky: Sky, stack: ExitStack, port: int) -> subprocess.Popen[str]:
    """Start a web server. Its standard error has a line for each request, which begins with the client's address."""
    words = [sys.executable, "-u", "-m", "http.server", str(port)]
    process = sky.popen(SERVER, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
    assert process.stdout is not None and process.stderr is not None
    stack.enter_context(process.stderr)
    stack.callback(stop, process)
    # It prints this when it listens.
    assert process.stdout.readline().startswith("Serving HTTP")
    return process


def client_of(process: subprocess.Popen[str]) -> str:
    """Return the address that the next request came from."""
    assert process.stderr is not None
    return process.stderr.readline().split()[0]


def test_a_named_destination_is_reached_through_the_proxy(make_sky: Make, tmp_path: Path, redirecting: str) -> None:
    names = {machine.removesuffix("-1") for machine in (CLIENT, PROXY, SERVER)}
    links = [
        {"between": ["site:client", "site:between"], "rtt_ms": 10, "rate": "100Mbit/s"},
        {"between": ["site:between", "site:server"], "rtt_ms": 10, "rate": "100Mbit/s"},
        {"between": ["site:client", "site:server"], "rtt_ms": 20, "rate": "100Mbit/s"},
    ]
    sky = make_sky({f"site:{name}": {"name": name} for name in names}, links)
    server = sky.machines[SERVER].address
    with ExitStack() as stack:
        named, other = (serving(sky, stack, port) for port in (NAMED_PORT, OTHER_PORT))
        to = f"{server}:{NAMED_PORT}"
        url = urlsplit(stack.enter_context(proxy_chain(sky, [PROXY], to, tmp_path / "chain")))
        command = [sys.executable, "-m", "tradewind.cli.main", "accelerate", "run", "--to", to]
        command += ["--through", f"{url.scheme}://{url.username}@{url.hostname}:{url.port}", "--"]
        fetch = ["curl", "-sS", "-m", "20", "-o", os.devnull, "-o", os.devnull]
        done = sky.run(
            CLIENT,
            [*command, *fetch, f"http://{to}/", f"http://{server}:{OTHER_PORT}/"],
            env={
                **os.environ,
                "PATH": redirecting,
                "TRADEWIND_PROXY_TOKEN": url.password or "",
                "TRADEWIND_STATE_DIR": str(tmp_path / "state"),
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "note: 1 connection to the proxy:" in done.stderr
        assert client_of(named) == sky.machines[PROXY].address
        assert client_of(other) == sky.machines[CLIENT].address
