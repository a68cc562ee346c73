"""Clients that use all calls of a provider, each in a process that can be killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Client", "Clients", "clients_of"]

#: Each line on standard input starts a client in a process of its own, whose id is printed first, then its exit code.
#: The libraries of the cloud, which are slow to load, are loaded once.
_CLIENTS = """
import json, os, sys
from importlib import import_module
from pathlib import Path
from tests.fleet.orders import FLEET
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import make_provider
cloud, *_ = [import_module(name) for name in sys.argv[1:]]
def live(document, state, names, market):
    provider = make_provider(document, "no-binary", FleetJournal(Path(state)))
    if market:
        provider.quota(cloud.REGION)
        provider.offers([cloud.REGION])
    launched = provider.launch([cloud.order(name) for name in names])
    assert all(result.machine for result in launched), launched
    provider.terminate([machine.id for machine in provider.machines({FLEET_TAG: FLEET})])
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        live(*json.loads(line))
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Client:
    """A client that runs until it has used all calls, or is killed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._answers = process.stdout
        self._pid = int(self._line())

    def _line(self) -> bytes:
        line = self._answers.readline()
        assert line, "the process that starts clients has ended"
        return line

    def has_ended(self) -> bool:
        """Tell whether the client has ended."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def exit_code(self) -> int:
        """Wait for the end of the client, and return its exit code; that of a killed one is -9."""
        return int(self._line())

    def kill(self) -> bool:
        """Kill the client and wait for its end. Return False if it has ended by itself, without an error."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        code = self.exit_code()
        assert code in (0, -signal.SIGKILL), f"the client has failed with exit code {code}"
        return code != 0


class Clients:
    """Starts clients, one after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def start(self, document: dict[str, Any], state: Path, *names: str, market: bool = True) -> Client:
        """Start a client with a provider, a state folder, and names of machines.

        With `market` it first asks for the quota and the offers of the region.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([document, str(state), names, market]).encode() + b"\n")
        return Client(self._process)


@contextmanager
def clients_of(stage_module: str, *libraries: str) -> Iterator[Clients]:
    """Start clients with the orders and the region of a module of these tests, and with libraries loaded before."""
    command = [sys.executable, "-c", _CLIENTS, stage_module, *libraries]
    # Without buffers, because has_ended() must see what exit_code() will read.
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Clients(process)
        finally:
            process.kill()
