"""Short flows: a server that sends as many bytes as it is asked for, and a client that measures their times.

Runs as a program in the machines of a sky, so it needs the standard library only.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time

REQUEST = struct.Struct(">Q")
BLOCK = bytes(1 << 16)
PATIENCE_S = 60.0


def serve(port: int) -> None:
    """Answer each connection with the number of bytes that it asks for."""
    with socket.create_server(("0.0.0.0", port), backlog=256) as listener:
        print("listening", flush=True)
        while True:
            threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = connection.recv(REQUEST.size, socket.MSG_WAITALL)
        left = REQUEST.unpack(request)[0] if len(request) == REQUEST.size else 0
        while left:
            left -= connection.send(BLOCK[: min(left, len(BLOCK))])


def fetch(address: str, size_bytes: int, burst: int, rounds: int, pause_s: float) -> list[list[float]]:
    """Fetch `burst` times at once, `rounds` times, with a pause before each round.

    Return the time to the first and to the last byte of each flow, from its start [ms].
    """
    times: list[list[float]] = []
    for _ in range(rounds):
        time.sleep(pause_s)
        threads = [threading.Thread(target=_fetch, args=(address, size_bytes, times)) for _ in range(burst)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return times


def _fetch(address: str, size_bytes: int, times: list[list[float]]) -> None:
    host, _, port = address.rpartition(":")
    begun_s = time.monotonic()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(REQUEST.pack(size_bytes))
        received = len(connection.recv(1))
        first_s = time.monotonic()
        while data := connection.recv(1 << 16):
            received += len(data)
    if received != size_bytes:
        raise RuntimeError(f"{received} bytes arrived, not {size_bytes}")
    times.append([(first_s - begun_s) * 1e3, (time.monotonic() - begun_s) * 1e3])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        size, burst, rounds = map(int, sys.argv[3:6])
        print(json.dumps(fetch(sys.argv[2], size, burst, rounds, float(sys.argv[6]))))
