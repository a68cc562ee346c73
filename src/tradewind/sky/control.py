"""The emulator's control socket: one JSON line per request and per reply (docs/reference/sky.md)."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from tradewind.errors import SkyError

__all__ = ["SkyControl"]

#: Timeout for a reply; then the emulator counts as lost.
REQUEST_S = 10.0
#: Maximum size of one reply. Statistics of 200 machines with a path between any two are about 5 MB.
ANSWER_BYTES_MAX = 32 << 20


class SkyControl:
    """One emulator, by the path of its control socket. Each request has its own connection: any thread may send one."""

    def __init__(self, path: str) -> None:
        self.path = path

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Send `{"do": request, …}`, without arguments that are None. Raises SkyError."""
        given = {key: value for key, value in arguments.items() if value is not None}
        line = json.dumps({"do": request, **given}).encode() + b"\n"
        try:
            with self._connected() as connection, connection.makefile("rb") as stream:
                connection.sendall(line)
                answer = json.loads(stream.readline(ANSWER_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise SkyError(
                f"the sky does not answer: {error}", hint="`tradewind sky status FILE` says whether it runs"
            ) from error
        if not answer.pop("ok"):
            raise SkyError(answer["error"], hint=answer.get("hint"))
        result: dict[str, Any] = answer
        return result

    def is_answered(self) -> bool:
        """Return whether an emulator is listening."""
        try:
            self._connected().close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Stop the emulator and wait until it has ended: it closes the connection last. Raises SkyError.

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
            # The kernel accepts at most 107 bytes as the path of a socket; a folder's path may be longer.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/{name}")
            finally:
                os.close(descriptor)
        except BaseException:
            connection.close()
            raise
        return connection
