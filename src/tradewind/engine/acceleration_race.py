"""Downloads over 200 ms, side by side: direct, direct with tuned ends, and through split proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tradewind.acceleration.fetching import clone, download, has_git, make_files, require_curl, serving
from tradewind.acceleration.proxies import proxy_chain
from tradewind.acceleration.scene import (
    CLIENT,
    LINK_MBPS,
    PROXY_MACHINES,
    RECEIVE_BYTES,
    RTT_MS,
    SCALE,
    SEND_BYTES,
    SERVER,
    TUNED_BYTES,
    WAYS,
    Way,
    predicted_mbps,
    scene,
)
from tradewind.model.records import dataclass
from tradewind.sky.running import Sky

__all__ = ["LINK_MBPS", "RTT_MS", "SCALE", "WAYS", "AccelerationRace", "Fetched"]

#: Part of the file's size that the repository has.
REPOSITORY_SHARE = 0.5
CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
DEFAULT_CONTROL, TUNED_CONTROL = "cubic", "bbr"
MBITS_PER_BYTE = 8e-6


@dataclass(frozen=True, slots=True)
class Fetched:
    """The download of one program by one way. The bytes were compared with the original."""

    way: Way
    program: str
    size_bytes: int
    elapsed_s: float
    predicted_mbps: float

    @property
    def mbps(self) -> float:
        """Size over time [Mbit/s]: handshakes and slow start count."""
        return self.size_bytes * MBITS_PER_BYTE / self.elapsed_s


class AccelerationRace:
    """A sky of five machines, and a server with real files in it. As a context it ends everything that it started.

    `place` is an empty folder for all files. Raises SkyUnavailable if this host cannot run a sky or has no curl.
    """

    def __init__(self, place: Path, gateway: str | None, size_bytes: int) -> None:
        self._place, self._gateway = place, gateway
        self._size_bytes = size_bytes
        self._predicted = predicted_mbps(WAYS)
        self._chains = 0
        self._held = ExitStack()
        #: The programs that fetch, and the amount for each [bytes].
        self.programs: Mapping[str, int] = {"curl": size_bytes}
        if has_git():
            self.programs = {**self.programs, "git clone": round(size_bytes * REPOSITORY_SHARE)}
        self.tuned_control = TUNED_CONTROL if TUNED_CONTROL in CONTROLS.read_text().split() else DEFAULT_CONTROL

    def __enter__(self) -> AccelerationRace:
        require_curl()
        with ExitStack() as stack:
            self._sky = stack.enter_context(Sky.up(scene()))
            make_files(self._place / "served", self._size_bytes, round(self._size_bytes * REPOSITORY_SHARE))
            (self._place / "copies").mkdir()
            for machine in self._sky.machines:
                _set(self._sky, machine, "tcp_no_metrics_save", "1")
            for machine in PROXY_MACHINES:
                self._tune(machine)
            self._server = stack.enter_context(serving(self._sky, SERVER, self._place / "served"))
            self._held = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def fetch(self, way: Way) -> Iterator[Fetched]:
        """Run each program by one way. Raises JobFailed, VerificationMismatch, GatewayError."""
        fetch: Mapping[str, Callable[..., float]] = {"curl": download, "git clone": clone}
        for end in (CLIENT, SERVER):
            if way.tuned:
                self._tune(end)
            else:
                self._reset(end)
        with self._proxy(way) as proxy:
            for program, size_bytes in self.programs.items():
                folders = self._place / "copies", self._place / "served"
                elapsed_s = fetch[program](self._sky, CLIENT, self._server, *folders, proxy)
                yield Fetched(way, program, size_bytes, elapsed_s, self._predicted[way.name])

    def late(self) -> str | None:
        """Return why the times do not count if the sky was overloaded."""
        return self._sky.stats().invalid

    @contextmanager
    def _proxy(self, way: Way) -> Iterator[str | None]:
        """Run the proxies of a way, and yield the URL of the first."""
        if not way.through:
            yield None
            return
        self._chains += 1
        place = self._place / f"chain-{self._chains}"
        with proxy_chain(self._sky, way.through, self._server, place, self._gateway) as proxy:
            yield proxy

    def _tune(self, machine: str) -> None:
        _set(self._sky, machine, "tcp_rmem", f"4096 131072 {TUNED_BYTES}")
        _set(self._sky, machine, "tcp_wmem", f"4096 16384 {TUNED_BYTES}")
        self._sky.set_machine(machine, congestion_control=self.tuned_control)

    def _reset(self, machine: str) -> None:
        _set(self._sky, machine, "tcp_rmem", f"4096 131072 {RECEIVE_BYTES}")
        _set(self._sky, machine, "tcp_wmem", f"4096 16384 {SEND_BYTES}")
        self._sky.set_machine(machine, congestion_control=DEFAULT_CONTROL)


def _set(sky: Sky, machine: str, setting: str, value: str) -> None:
    """Write a setting of TCP, which each network namespace has for itself."""
    sky.run(machine, ["sh", "-c", f'echo "$1" > /proc/sys/net/ipv4/{setting}', "sh", value], check=True)
