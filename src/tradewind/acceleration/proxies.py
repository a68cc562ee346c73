"""Split proxies as processes in the machines of a sky, and the chain of them that a client enters by SOCKS5."""

from __future__ import annotations

import hashlib
import json
import secrets
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError
from tradewind.gateway.binary import find_gateway
from tradewind.model.files import open_private
from tradewind.sky.running import Sky

__all__ = ["first_line", "proxy_chain", "stop"]

SOCKS_PORT, HOP_PORT = 1080, 4430
#: Timeout for the first line of a program.
READY_S = 30.0
#: A program that has not ended this long after the order to stop is killed.
STOP_S = 10.0
#: Name in the token file.
USER = "client"


def first_line(process: subprocess.Popen[str], what: str) -> str:
    """Return the first line that a program prints. Raises GatewayError if none comes in time."""
    assert process.stdout is not None
    line = process.stdout.readline() if select.select([process.stdout], [], [], READY_S)[0] else ""
    if not line:
        raise GatewayError(f"{what} did not start", hint="the lines before this one may say why")
    return line


@contextmanager
def proxy_chain(
    sky: Sky, machines: Sequence[str], destination: str, place: Path, gateway: str | None = None
) -> Iterator[str]:
    """Run a split proxy in each machine within the block. Yield the URL of the first, for ALL_PROXY, with its token.

    They serve `destination` (`ADDRESS:PORT`) only. Between them is mutual TLS, with identities made in `place`.
    Raises GatewayError.
    """
    binary = gateway or find_gateway()
    place.mkdir(parents=True)
    token = secrets.token_urlsafe(32)
    with open(place / "tokens", "w", encoding="utf-8", opener=open_private) as file:
        file.write(f"{USER}:{hashlib.sha256(token.encode()).hexdigest()}\n")
    _make_identities(binary, place / "fleet", machines)
    with ExitStack() as stack:
        for number in range(len(machines)):
            document = _document(sky, machines, number, destination, place)
            stack.enter_context(_running(sky, machines[number], binary, document))
        yield f"socks5h://{USER}:{token}@{sky.machines[machines[0]].address}:{SOCKS_PORT}"


def _make_identities(binary: str, folder: Path, machines: Sequence[str]) -> None:
    words = [binary, "identity", "--out", str(folder), "--name", *machines]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GatewayError(f"the proxies' identities could not be made: {done.stderr.strip()}")


def _document(sky: Sky, machines: Sequence[str], number: int, destination: str, place: Path) -> Mapping[str, Any]:
    """Return the configuration of one proxy of the chain."""
    machine, later = machines[number], machines[number + 1 :]
    address = sky.machines[machine].address
    entry = {"listen": f"{address}:{SOCKS_PORT}", "way": "socks5", "tokens": str(place / "tokens")}
    return {
        "allow": [destination],
        "identity": str(place / "fleet" / machine),
        "listeners": [entry if number == 0 else {"listen": f"{address}:{HOP_PORT}", "way": "hop"}],
        "proxies": {name: f"{sky.machines[name].address}:{HOP_PORT}" for name in later},
        "routes": [{"destination": destination, "through": list(later)}] if number == 0 else [],
    }


@contextmanager
def _running(sky: Sky, machine: str, binary: str, document: Mapping[str, Any]) -> Iterator[None]:
    words = [binary, "split", "--config", "-"]
    process = sky.popen(machine, words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        # A program that has ended at once says why on standard error, and prints no line.
        with suppress(BrokenPipeError), process.stdin as stdin:
            json.dump(document, stdin)
        first_line(process, f"the split proxy in {machine}")
        yield
    finally:
        stop(process)


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process; kill it if it does not end in time."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
