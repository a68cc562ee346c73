"""One process of the gateway program on this machine: a gateway, or the owner of a fleet."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

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


class BinaryProcess:
    """A running `tradewind-gateway`; subclasses name its command.

    It has its own process group, so that Ctrl-C in the terminal reaches only the client. Its standard input is a pipe
    that we hold: when we die, however we die, it reads end of file and ends too. Its standard error goes to `log_file`.
    `enter` are the words of a command that becomes the one behind it, elsewhere: in another network namespace.
    `environment` is ours unless given; `input_line` is the first line of its standard input, where nobody else sees it.
    """

    command = ""

    def __init__(
        self,
        binary: str,
        name: str,
        arguments: list[str],
        log_file: str,
        descriptors: tuple[int, ...] = (),
        enter: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        input_line: str | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._line = b""
        with open(log_file, "ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*enter, binary, self.command, *arguments, "--exit-with-stdin"],
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
        if input_line is not None:
            assert self._process.stdin is not None
            # Shorter than what a pipe holds. One that has ended already shows it by its exit code.
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{input_line}\n".encode())
                self._process.stdin.flush()

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

    def read_ready(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the readiness line and return it.

        Raises GatewayError if the process ends before, sends nothing within the timeout, or speaks another contract;
        the process is then ended.
        """
        if not self._is_line_there(timeout_s):
            self.kill()
            raise GatewayError(f"gateway {self.name} was not ready within {timeout_s:.0f} s: {self.log_tail()}")
        try:
            ready: dict[str, Any] = json.loads(self._line)
            require_contract(ready.get("gateway", "of an unknown version"), ready.get("contract", IMPLIED_CONTRACT))
        except (ValueError, AttributeError) as error:
            self.kill()
            raise GatewayError(f"gateway {self.name} did not start: {self.log_tail() or self._line!r}") from error
        except GatewayError:
            self.kill()
            raise
        return ready

    def _is_line_there(self, timeout_s: float) -> bool:
        """Return whether the readiness line, or the end of the output, has arrived within the timeout."""
        assert self._process.stdout is not None
        descriptor, deadline_s = self._process.stdout.fileno(), time.monotonic() + timeout_s
        while not self._line.endswith(b"\n") and len(self._line) < READY_BYTES_MAX:
            if not select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                return False
            piece = os.read(descriptor, 4096)
            if not piece:
                return True
            self._line += piece
        return True

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


class GatewayProcess(BinaryProcess):
    """A running gateway. `control` is empty before it is ready, and for one that calls home."""

    command = "serve"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Start it; see BinaryProcess."""
        super().__init__(*arguments, **options)
        self.control = ""
        self.data_address: str | None = None

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait for the readiness line and read the addresses from it. Raises GatewayError, as `read_ready`."""
        ready = self.read_ready(timeout_s)
        self.control, self.data_address = ready["control"] or "", ready.get("data_address")

    def poll_ready(self, timeout_s: float) -> None:
        """Read the addresses if the process says them within the timeout, and leave it alone if it does not."""
        if not self.control and self.exit_code is None and self._is_line_there(timeout_s):
            self.wait_ready(0.0)


def log_tail(log_file: str, bytes_max: int) -> str:
    """Return the end of a gateway's log."""
    with suppress(OSError), open(log_file, "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - bytes_max))
        return log.read().decode(errors="replace").strip()
    return ""
