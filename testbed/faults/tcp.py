"""A TCP proxy between two gateways that cuts, freezes, corrupts or refuses connections, whatever they carry."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

PIECE_BYTES = 256 << 10


class TcpProxy:
    """Listens on a free loopback port and forwards every connection to ``target`` (``IP:PORT``)."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        """May be set later, before the first connection, because gateways often need each other's address first."""
        self.forward_bytes_per_s: float | None = None
        """Rate of each connection to the target; None for no limit."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.bytes_forward = 0
        """Bytes forwarded to the target, over all connections."""
        self.bytes_back = 0
        self.connections_accepted = 0
        self._flip_at: int | None = None
        self._cut_after_bytes = 0
        self._cuts_left = 0
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        threading.Thread(target=self._accept, name="tcp-proxy", daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def cut(self, connections_max: int | None = None) -> int:
        """Reset open connections, all or at most `connections_max`; return the number of pairs reset."""
        with self._changed:
            clients = [each for each in self._open if each.getsockname()[1] == self._port()]
        for each in clients[:connections_max]:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
        return len(clients[:connections_max])

    def cut_each_after(self, forward_bytes: int, cuts_max: int) -> None:
        """End each connection that has forwarded `forward_bytes` to the target, until `cuts_max` have been ended."""
        self._cut_after_bytes, self._cuts_left = forward_bytes, cuts_max

    def freeze(self) -> None:
        """Stop forwarding, but keep all connections."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Resume forwarding."""
        self._flowing.set()

    def refuse(self, refusing: bool = True) -> None:
        """End every new connection at once."""
        self._refusing = refusing

    def flip_forward(self, after_bytes: int) -> None:
        """Invert one bit of the byte that is forwarded to the target ``after_bytes`` from now."""
        with self._changed:
            self._flip_at = self.bytes_forward + after_bytes

    def wait_forward(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until `count` bytes in total have been forwarded to the target."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.bytes_forward >= count, timeout_s):
                raise TimeoutError(f"{self.bytes_forward} of {count} bytes within {timeout_s:.0f} s")

    def wait_connections(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until `count` connections in total have been made."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.connections_accepted >= count, timeout_s):
                raise TimeoutError(f"{self.connections_accepted} of {count} connections within {timeout_s:.0f} s")

    @property
    def flip_pending(self) -> bool:
        """True if a flip was requested and has not happened yet."""
        return self._flip_at is not None

    def stop(self) -> None:
        """Close the port and every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flowing.set()
        with self._changed:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            host, _, port = self.target.rpartition(":")
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self.connections_accepted += 1
                self._open |= {client, server}
                self._changed.notify_all()
            for source, sink, forward in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._carry, args=(source, sink, forward), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, forward: bool) -> None:
        buffer, carried = bytearray(PIECE_BYTES), 0
        try:
            while count := source.recv_into(buffer):
                self._flowing.wait()
                if forward:
                    self._flip(buffer, count)
                sink.sendall(memoryview(buffer)[:count])
                if forward and self.forward_bytes_per_s is not None:
                    time.sleep(count / self.forward_bytes_per_s)
                carried += count
                with self._changed:
                    if forward:
                        self.bytes_forward += count
                    else:
                        self.bytes_back += count
                    self._changed.notify_all()
                    if forward and self._cuts_left and carried >= self._cut_after_bytes:
                        self._cuts_left -= 1
                        return
        except OSError:
            # A reset on one side ends both. The gateways must handle either.
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            with self._changed:
                self._open.discard(source)
            source.close()

    def _flip(self, buffer: bytearray, count: int) -> None:
        with self._changed:
            if self._flip_at is not None and self._flip_at < self.bytes_forward + count:
                buffer[max(0, self._flip_at - self.bytes_forward)] ^= 1
                self._flip_at = None
