"""One process of the gateway program on this host: a gateway, or the owner of a fleet."""

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
from tradewind.gateway.binary import IMPLIED_CONTRACT, not_started, require_contract
from tradewind.model.files import open_private

#: The name of a fleet's owner in the certificates of the fleet. It is reserved: no gateway may have it.
OWNER_NAME = "tradewind-owner"
#: Timeout for a gateway's readiness line, long enough for a busy machine.
READY_S = 60.0
#: Maximum time until a gateway ends after its standard input is closed. After it, the gateway is killed.
STOP_S = 10.0
#: Maximum time until a process ends after SIGKILL. After it, the process is stuck in the kernel, for example at a disk
#: that hangs. It executes no further instruction, and ends when the kernel lets it.
KILLED_S = 2.0
#: Length of the log's end that is shown for a dead gateway.
TAIL_BYTES = 2000
#: Maximum length of the readiness line.
READY_BYTES_MAX = 65536


#: Names of the gateways that this process started and has not reaped, by process id. Only changed by atomic operations,
#: so that it can be read without a lock.
_started: dict[int, str] = {}


def kill_started() -> None:
    """Send SIGKILL to all gateways that this process started, without a lock and without waiting.

    Meant for a forced exit. Threads that wait for one of the gateways notice its end.
    """
    for pid in list(_started):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


class BinaryProcess:
    """A running `tradewind-gateway`. Subclasses define its command.

    It has its own process group, so that Ctrl-C in the terminal reaches only the client. Its standard input is a pipe
    from this process: when this process ends in whatever way, the child reads end of file and ends too. Its standard
    error goes to `log_file`.
    `enter` is a command prefix that runs the command after it in another network namespace. `environment` is that of
    this process by default. `input_line` is the first line of the child's standard input, where no other process sees
    it.
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
        with open(log_file, "ab", opener=open_private) as log:
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
                raise not_started(enter[0] if enter else binary, error) from error
        _started[self._process.pid] = name
        if input_line is not None:
            assert self._process.stdin is not None
            # The line fits into the pipe's buffer. If the process has already ended, its exit code shows it later.
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{input_line}\n".encode())
                self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs; `-N` if signal N ended it."""
        return self._reaped(self._process.poll())

    def _reaped(self, code: int | None) -> int | None:
        """Return the exit code. If there is one, forget the process id, which another process may get."""
        if code is not None:
            _started.pop(self._process.pid, None)
        return code

    def read_ready(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the readiness line and return it, parsed.

        Raises GatewayError if the process ends first, sends nothing within the timeout, or speaks another contract. The
        process is then ended.
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
        """Wait up to the timeout for the readiness line or the end of the output; return whether it arrived."""
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
        """Return the end of the process's standard error."""
        return log_tail(self.log_file, TAIL_BYTES)

    def wait_exit(self, timeout_s: float) -> int | None:
        """Wait for the process to end and return its exit code; None if it still runs after `timeout_s`."""
        self._wait_end(timeout_s)
        return self.exit_code

    def _wait_end(self, timeout_s: float) -> None:
        """Wait up to the timeout for the process to end, without reaping it where the kernel can notify us.

        `Popen.wait` polls with pauses of up to 50 ms, which a short job would sleep through at its end.
        """
        deadline_s = time.monotonic() + timeout_s
        if self._process.returncode is not None:
            return
        with suppress(OSError, AttributeError):  # Without pidfd, or reaped by another thread.
            descriptor = os.pidfd_open(self._process.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(timeout_s * 1000)
            finally:
                os.close(descriptor)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline_s - time.monotonic()))

    def ending(self, timeout_s: float) -> str | None:
        """Describe how the process ended: exit code or signal, and last line of the log. None if it still runs."""
        code = self.wait_exit(timeout_s)
        if code is None:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        log = self.log_tail()
        return f"{how}: {log.splitlines()[-1]}" if log else how

    def begin_stop(self) -> None:
        """Close the process's standard input, at which it ends by itself."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def stop(self) -> None:
        """End the process and wait for it. Kill it if it does not end within STOP_S."""
        self.begin_stop()
        if self.wait_exit(STOP_S) is None:
            self.kill()
        self._close_output()

    def kill(self) -> None:
        """Send SIGKILL to the process, and wait up to KILLED_S for its end."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.begin_stop()
        self._wait_end(KILLED_S)
        self._reaped(self._process.poll())
        self._close_output()

    def _close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()


class GatewayProcess(BinaryProcess):
    """A running gateway. `control` is empty until the gateway is ready, and if it calls home."""

    command = "serve"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Start the gateway; for the arguments see BinaryProcess."""
        super().__init__(*arguments, **options)
        self.control = ""
        self.data_address: str | None = None

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait for the readiness line and read the addresses from it. Raises GatewayError like `read_ready`."""
        ready = self.read_ready(timeout_s)
        self.control, self.data_address = ready["control"] or "", ready.get("data_address")

    def poll_ready(self, timeout_s: float) -> None:
        """Read the addresses if the readiness line arrives within the timeout. If not, the process keeps running."""
        if not self.control and self.exit_code is None and self._is_line_there(timeout_s):
            self.wait_ready(0.0)


def log_tail(log_file: str, bytes_max: int) -> str:
    """Return the end of a gateway's log."""
    with suppress(OSError), open(log_file, "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - bytes_max))
        return log.read().decode(errors="replace").strip()
    return ""
