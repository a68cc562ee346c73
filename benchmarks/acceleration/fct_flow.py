"""A flow of a given size, timed by its sender until the receiver has all of it: ``python fct_flow.py receive|send …``.

It imports nothing of the project, so that it starts in a moment in any machine.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

HEADER_BYTES = 8
PIECE_BYTES = 64 << 10
DONE = b"d"
TIMEOUT_S = 900.0


def receive(address: str, port: int) -> None:
    """Accept flows until killed. Each begins with its size, and is answered when it has arrived."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_take, args=(connection,), daemon=True).start()


def _take(connection: socket.socket) -> None:
    connection.settimeout(TIMEOUT_S)
    with connection:
        left = int.from_bytes(connection.recv(HEADER_BYTES, socket.MSG_WAITALL), "big")
        buffer = bytearray(PIECE_BYTES)
        while left > 0 and (got := connection.recv_into(buffer)):
            left -= got
        if left <= 0:
            connection.sendall(DONE)


def send(address: str, port: int, size_bytes: int) -> float:
    """Send a flow, and return the seconds from the start of the connection to the answer."""
    began_s = time.monotonic()
    with socket.create_connection((address, port), TIMEOUT_S) as connection:
        connection.sendall(size_bytes.to_bytes(HEADER_BYTES, "big"))
        piece, left = bytes(PIECE_BYTES), size_bytes
        while left > 0:
            connection.sendall(piece[: min(left, PIECE_BYTES)])
            left -= PIECE_BYTES
        if connection.recv(1) != DONE:
            raise ConnectionError("the flow did not arrive")
    return time.monotonic() - began_s


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        print(send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
