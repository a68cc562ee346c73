"""One gateway process on this machine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tradewind.errors import GatewayError
from tradewind.gateway.binary import IMPLIED_CONTRACT, require_contract

#: A gateway prints its readiness line within so long, even on a busy machine.
READY_S = 60.0
#: A gateway ends within so long after its standard input is closed, else it is killed.
STOP_S = 10.0
#: Of a dead gateway's log so much is shown.
TAIL_BYTES = 2000
#: The readiness line is no longer than this.
READY_BYTES_MAX = 65536


#: Process ids of the gateways that this process started and has not waited for. Changed by single operations, so that
#: it can be read without a lock.
_started: dict[int, str] = {}


def kill_started() -> None:
    """SIGKILL to all gateways that this process started. Takes no lock and waits for nothing.

    For the moment at which nothing else may go on: whoever waits for one of them notices.
    """
    for pid in list(_started):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


class GatewayProcess:
    """A running `tradewind-gateway serve`.

    It has its own process group, so that Ctrl-C in the terminal reaches only the client. Its standard input is a pipe
    that we hold: when we die, however we die, it reads end of file and ends too. Its standard error goes to `log_file`.
    `enter` are the words of a command that becomes the one behind it, elsewhere: in another network namespace.
    `environment` is ours unless given.
    """

    def __init__(
        self,
        binary: str,
        name: str,
        arguments: list[str],
        log_file: str,
        descriptors: tuple[int, ...] = (),
        enter: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self.control = ""
        self.data_address: str | None = None
        with open(log_file, "ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*enter, binary, "serve", *arguments, "--exit-with-stdin"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=descriptors,
                    env=environment,
                )
            except OSError as error:
                raise GatewayError(f"{enter[0] if enter else binary} cannot be started: {error}") from error
        _started[self._process.pid] = name

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""
        return self._reaped(self._process.poll())

    def _reaped(self, code: int | None) -> int | None:
        """The code; once there is one, the process id may be another process's."""
        if code is not None:
            _started.pop(self._process.pid, None)
        return code

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait for the readiness line and read the addresses from it.

        Raises GatewayError if the process ends before, sends nothing within the timeout, or speaks another contract;
        the process is then ended.
        """
        line = self._first_line(timeout_s)
        try:
            ready = json.loads(line)
            self.control, self.data_address = ready["control"], ready.get("data_address")
        except (ValueError, KeyError, TypeError) as error:
            self.kill()
            raise GatewayError(f"gateway {self.name} did not start: {self.log_tail() or line!r}") from error
        try:
            require_contract(ready.get("gateway", "of an unknown version"), ready.get("contract", IMPLIED_CONTRACT))
        except GatewayError:
            self.kill()
            raise

    def _first_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor, line, deadline = self._process.stdout.fileno(), b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n") and len(line) < READY_BYTES_MAX:
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.kill()
                raise GatewayError(f"gateway {self.name} was not ready within {timeout_s:.0f} s: {self.log_tail()}")
            piece = os.read(descriptor, 4096)
            if not piece:
                break
            line += piece
        return line

    def log_tail(self) -> str:
        """The end of what it wrote to standard error."""
        return log_tail(self.log_file, TAIL_BYTES)

    def wait_exit(self, timeout_s: float) -> int | None:
        """Its exit code once it has ended; None if it still runs after `timeout_s`."""
        try:
            return self._reaped(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def ending(self, timeout_s: float) -> str | None:
        """Describe how it ended: its exit code or signal, and the last line of its log. None if it still runs."""
        code = self.wait_exit(timeout_s)
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        log = self.log_tail()
        return f"{how}: {log.splitlines()[-1]}" if log else how

    def begin_stop(self) -> None:
        """Closes its standard input: it ends by itself."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def stop(self) -> None:
        """Ends it and waits; kills it if it does not end within STOP_S."""
        self.begin_stop()
        try:
            self._reaped(self._process.wait(STOP_S))
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_output()

    def kill(self) -> None:
        """SIGKILL, and waits for it to be gone."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.begin_stop()
        self._reaped(self._process.wait())
        self._close_output()

    def _close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


def log_tail(log_file: str, bytes_max: int) -> str:
    """Return the end of a gateway's log."""
    with suppress(OSError), open(log_file, "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - bytes_max))
        return log.read().decode(errors="replace").strip()
    return ""
