"""The emulator's control socket: one JSON line asks, one JSON line answers (docs/reference/sky.md)."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from tradewind.errors import SkyError

__all__ = ["SkyControl"]

#: The emulator answers within so long, else it is lost.
REQUEST_S = 10.0
#: Of one answer. Statistics of 200 machines with a path between any two are about 5 MB.
ANSWER_BYTES_MAX = 32 << 20


class SkyControl:
    """One emulator, by the path of its control socket. Each request has its own connection: any thread may ask."""

    def __init__(self, path: str) -> None:
        self.path = path

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Sends `{"do": request, …}`; arguments that are None are left out. Raises SkyError."""
        given = {key: value for key, value in arguments.items() if value is not None}
        line = json.dumps({"do": request, **given}).encode() + b"\n"
        try:
            with self._connected() as connection, connection.makefile("rb") as stream:
                connection.sendall(line)
                answer = json.loads(stream.readline(ANSWER_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise SkyError(
                f"the sky does not answer: {error}", hint="`tradewind sky status FILE` says whether it is up"
            ) from error
        if not answer.pop("ok"):
            raise SkyError(answer["error"], hint=answer.get("hint"))
        result: dict[str, Any] = answer
        return result

    def is_answered(self) -> bool:
        """Return whether an emulator listens."""
        try:
            self._connected().close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Tells the emulator to end and waits until it has: it keeps the connection to its last act. Raises SkyError.

        Does nothing if no emulator listens.
        """
        try:
            with self._connected() as connection:
                connection.sendall(b'{"do": "stop"}\n')
                while connection.recv(4096):
                    pass
        except (FileNotFoundError, ConnectionError):
            return
        except OSError as error:
            raise SkyError(f"the sky does not stop: {error}") from error

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder, name = os.path.split(os.path.abspath(self.path))
        try:
            connection.settimeout(REQUEST_S)
            # The kernel takes 107 bytes as the path of a socket; a folder may be deeper than that.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            finally:
                os.close(descriptor)
        except BaseException:
            connection.close()
            raise
        return connection
