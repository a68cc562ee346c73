"""Access to a machine on a host: files, commands, its log and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TypeVar

from tradewind.errors import GatewayError
from tradewind.fleet.provider import CallRefused, Machine
from tradewind.fleet.ssh.connection import Connection, last_line
from tradewind.fleet.ssh.marks import folder_id
from tradewind.model.records import dataclass

__all__ = ["SshAccess"]

T = TypeVar("T")

#: Interval between two looks at a machine that is asked often whether it has ended.
LOOK_S = 1.0
NO_FORWARDING = "its SSH server forwards no ports: AllowTcpForwarding, PermitOpen or DisableForwarding of sshd_config"


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Access to a machine on a host."""

    connection: Connection
    machine: Machine
    look: Callable[[Machine], Machine | None]

    def put(self, name: str, content: bytes) -> str:
        """Write a file into the machine's folder, which is removed with the machine."""
        where = self._answered(lambda: self.connection.ask("where", folder_id(self.machine.id)))
        path = f"{where}/files/{Path(name).name}"
        folder, quoted = quote(path.rpartition("/")[0]), quote(path)
        steps = f"umask 077; mkdir -p {folder} && cat > {quoted} && chmod 700 {quoted}"
        code, _, said = self._answered(lambda: self.connection.run_script(steps, content))
        if code != 0:
            raise GatewayError(f"{name} cannot be written on {self.machine.zone}: {last_line(said)}")
        return path

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Run a command on the host, as the user that logs in there."""
        code, out, _ = self._answered(lambda: self.connection.run_words(words, timeout_s))
        return code, out.decode(errors="replace")

    def log_tail(self, bytes_max: int) -> str:
        """Return the end of the gateway's log."""
        lines = self._call("tail_log", folder_id(self.machine.id), str(bytes_max))
        return "\n".join("\t".join(line) for line in lines)

    def ending(self, timeout_s: float) -> str | None:
        """Return that the gateway has ended, or that its host lets nobody reach it; None if it may still answer."""
        if self.connection.forbids_forwarding:
            return f"{self.machine.zone}: {NO_FORWARDING}"
        deadline_s = time.monotonic() + timeout_s
        while True:
            with suppress(CallRefused):
                now = self.look(self.machine)
                if now is None or now.ended:
                    return "it has ended"
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(LOOK_S)

    def _call(self, function: str, *words: str) -> list[list[str]]:
        return self._answered(lambda: self.connection.call(function, *words))

    @staticmethod
    def _answered(call: Callable[[], T]) -> T:
        try:
            return call()
        except CallRefused as error:
            raise GatewayError(str(error)) from error
