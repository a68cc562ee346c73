"""A running sky: its machines, processes in them, live changes, statistics."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tradewind.errors import SkyError, SkyUnavailable
from tradewind.model.files import open_private, private_folder
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.programs import find_program
from tradewind.sky.control import SkyControl
from tradewind.sky.file import read_sky_file
from tradewind.sky.folders import TEMPORARY
from tradewind.sky.network import EmulatedNetwork
from tradewind.sky.statistics import SkyStats

__all__ = ["BINARY", "ENVIRONMENT", "Sky", "SkyMachine", "find_emulator"]

BINARY = "tradewind-wan"
#: Path of the binary; takes precedence over all other places.
ENVIRONMENT = "TRADEWIND_WAN"
#: Timeout for the start of a sky: enough for 200 machines on a busy host.
READY_S = 60.0
#: The emulator is killed if it has not ended this long after the order to stop.
STOP_S = 10.0
#: Maximum length of the readiness line.
READY_BYTES_MAX = 1 << 20
#: Exit code of the emulator on a host that has no TUN device or does not let us use it.
EXIT_UNAVAILABLE = 11


def find_emulator() -> str:
    """Return the path of `tradewind-wan`: `TRADEWIND_WAN`, then beside this Python's scripts, then on PATH.

    Raises SkyError.
    """
    return find_program(BINARY, ENVIRONMENT, SkyError)


@dataclass(frozen=True, slots=True)
class SkyMachine:
    """One machine of a running sky. `netns` is a path to its network namespace, valid as long as the sky is up.

    `state` is its state at the time of the query: `running`, `frozen` or `gone`.
    """

    name: str
    region: Region
    address: str
    netns: str
    state: str
    inbound: bool = True
    """False if machines of other regions cannot open TCP connections to it."""


class Sky:
    """A running sky, made by `Sky.up` (owns it) or `Sky.attach` (another process's, or a detached one).

    It has no names on the host: namespaces, devices and addresses live in the emulator's file descriptors. Any number
    of skies run side by side, even with the same addresses. When the emulator ends for any reason, the processes in its
    machines are killed and nothing remains. A sky that was not detached ends with this process.
    """

    def __init__(self, folder: Path, ready: Mapping[str, Any], process: subprocess.Popen[bytes] | None) -> None:
        self.folder = folder
        self.pid: int = ready["pid"]
        #: True if the emulator got real-time scheduling; without it packets may be half a millisecond late.
        self.realtime: bool = ready["realtime"]
        self.control = SkyControl(str(folder / "control.sock"))
        self._machines = _machines(ready)
        self._process = process
        self._own_folder = False
        self._binary = find_emulator()

    @classmethod
    def up(
        cls, source: str | os.PathLike[str] | EmulatedNetwork, *, folder: Path | None = None, detached: bool = False
    ) -> Sky:
        """Start a sky from a sky file or a network, and return when its machines are ready.

        `folder` gets the control socket and the log; the default is a temporary one. A `detached` sky outlives
        this process. Raises SkyFileError, SkyUnavailable (no root, no TUN device), SkyError.
        """
        network = source if isinstance(source, EmulatedNetwork) else read_sky_file(source)
        own_folder = folder is None
        place = Path(tempfile.mkdtemp(prefix=TEMPORARY)) if folder is None else folder
        private_folder(place)
        try:
            process, ready = _start(place, network, detached)
        except BaseException:
            if own_folder:
                shutil.rmtree(place, ignore_errors=True)
            raise
        sky = cls(place, ready, process)
        sky._own_folder = own_folder
        return sky

    @classmethod
    def attach(cls, folder: Path) -> Sky:
        """Return the sky that was started with this folder. Raises SkyError if it is not running."""
        return cls(folder, SkyControl(str(folder / "control.sock")).ask("describe"), None)

    def __enter__(self) -> Sky:
        """Return the sky itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the sky down."""
        self.down()

    @property
    def machines(self) -> Mapping[str, SkyMachine]:
        """All machines by name, as at the start; `describe` returns their present state."""
        return self._machines

    def machines_in(self, region: str | Region) -> tuple[SkyMachine, ...]:
        """Return the machines of a region, in order; an empty tuple if the sky has none there."""
        return tuple(machine for machine in self._machines.values() if str(machine.region) == str(region))

    def describe(self) -> Mapping[str, SkyMachine]:
        """Return all machines with their present state. Raises SkyError."""
        return _machines(self.control.ask("describe"))

    def links(self) -> list[dict[str, Any]]:
        """Return all paths now: src, dst, rate_bps, queue_bytes, delay_us (one direction), loss, up, pipe.

        Paths with the same `pipe` share its rate. Raises SkyError.
        """
        links: list[dict[str, Any]] = self.control.ask("links")["links"]
        return links

    def wait(self) -> None:
        """Wait until the emulator ends by itself; only for one that this process started and did not detach."""
        if self._process is not None:
            self._process.wait()

    def command(self, machine: str, words: Sequence[str]) -> list[str]:
        """Return the command line that runs `words` in a machine. Its process becomes the program and keeps its pid.

        Raises SkyError for a machine that the sky does not have.
        """
        if machine not in self._machines:
            raise SkyError(f"the sky has no machine {machine!r}", hint=f"it has {', '.join(self._machines)}")
        return [self._binary, "enter", "--netns", self._machines[machine].netns, "--", *words]

    def check_running(self, machine: str) -> None:
        """Raise SkyError if the machine is frozen or gone: a process started in it would have no network."""
        state = self.describe()[machine].state
        if state != "running":
            ends = {"frozen": "thaw", "gone": "restore"}[state]
            raise SkyError(f"{machine} is {state}", hint=f"`tradewind sky set FILE {ends} {machine}` ends that")

    def popen(self, machine: str, words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start `subprocess.Popen` in a machine: with its network, but the host's files, users and Unix sockets."""
        return subprocess.Popen(self.command(machine, words), **options)

    def run(self, machine: str, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Start `subprocess.run` in a machine."""
        return subprocess.run(self.command(machine, words), check=options.pop("check", False), **options)

    def set_link(
        self,
        src: str,
        dst: str,
        *,
        one_way: bool = False,
        rate_mbps: float | None = None,
        rtt_ms: float | None = None,
        loss: float | None = None,
        queue_bytes: int | None = None,
        up: bool | None = None,
    ) -> None:
        """Change all links between two ends at once; each end is a machine, a region or `*`.

        `rate_mbps` [Mbit/s on the wire] is not scaled; without `queue_bytes` the queue keeps its length in time.
        `loss` is a share. `up=False` cuts the link, and packets on it are lost. Changes both directions unless
        `one_way`. Raises SkyError.
        """
        for ends in ((src, dst),) if one_way else ((src, dst), (dst, src)):
            self.control.ask(
                "link",
                src=ends[0],
                dst=ends[1],
                rate_bps=None if rate_mbps is None else round(rate_mbps * 1e6),
                delay_us=None if rtt_ms is None else round(rtt_ms * 500),
                loss=loss,
                queue_bytes=queue_bytes,
                up=up,
            )

    def set_machine(
        self,
        machine: str,
        *,
        egress_mbps: float | None = None,
        ingress_mbps: float | None = None,
        congestion_control: str | None = None,
    ) -> None:
        """Change the caps [Mbit/s on the wire] or, for new connections, the congestion control. Raises SkyError."""
        self.control.ask(
            "machine",
            name=machine,
            egress_bps=None if egress_mbps is None else round(egress_mbps * 1e6),
            ingress_bps=None if ingress_mbps is None else round(ingress_mbps * 1e6),
            congestion_control=congestion_control,
        )

    def freeze(self, machine: str) -> None:
        """Pause a machine like a hypervisor: its processes are stopped, and no packet reaches or leaves it."""
        self.control.ask("machine", name=machine, state="frozen")

    def thaw(self, machine: str) -> None:
        """End `freeze`: the processes continue where they stopped."""
        self.control.ask("machine", name=machine, state="running")

    def vanish(self, machine: str) -> None:
        """Cut a machine's power: no packet reaches or leaves it, then its processes are killed."""
        self.control.ask("machine", name=machine, state="gone")

    def restore(self, machine: str) -> None:
        """End `vanish`: the machine is back, without processes."""
        self.control.ask("machine", name=machine, state="running")

    def stats(self) -> SkyStats:
        """Return the counts since the start or the last `reset_stats`. Raises SkyError."""
        return SkyStats.from_document(self.control.ask("stats"))

    def reset_stats(self) -> None:
        """Reset all counts to zero, for example after a warm-up. Raises SkyError."""
        self.control.ask("reset")

    def check_valid(self) -> None:
        """Raise SkyInvalid if the emulator was overloaded since the start or the last `reset_stats`."""
        self.stats().check_valid()

    def down(self) -> None:
        """Kill the processes in the machines and take the sky down; return when it is gone. May be called twice."""
        if self._process is not None:
            _stop(self._process)
            self._process = None
        else:
            self.control.stop()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _machines(ready: Mapping[str, Any]) -> dict[str, SkyMachine]:
    return {
        machine["name"]: SkyMachine(
            machine["name"],
            Region.parse(machine["region"]),
            machine["address"],
            f"/proc/{ready['pid']}/fd/{machine['netns_fd']}",
            machine["state"],
            machine["inbound"],
        )
        for machine in ready["machines"]
    }


def _start(folder: Path, network: EmulatedNetwork, detached: bool) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    control, log_file = folder / "control.sock", folder / "emulator.log"
    if SkyControl(str(control)).is_answered():
        raise SkyError("the sky is already running", hint="`tradewind sky down FILE` ends it")
    with open(folder / "network.json", "w", encoding="utf-8", opener=open_private) as file:
        json.dump(network.document(), file)
    words = [find_emulator(), "run", "--network", str(folder / "network.json"), "--control", str(control)]
    with open(log_file, "wb", opener=open_private) as log:
        process = subprocess.Popen(
            words if detached else [*words, "--exit-with-stdin"],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        line = _first_line(process.stdout.fileno())
        if not line:
            raise _refusal(process, log_file)
    except BaseException:
        _stop(process)
        raise
    finally:
        process.stdout.close()
    ready: dict[str, Any] = json.loads(line)
    return process, ready


def _first_line(descriptor: int) -> bytes:
    deadline_s, line = time.monotonic() + READY_S, b""
    while not line.endswith(b"\n") and len(line) < READY_BYTES_MAX:
        if not select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            raise SkyError(f"the sky was not ready within {READY_S:.0f} s")
        piece = os.read(descriptor, 65536)
        if not piece:
            return b""
        line += piece
    return line


def _refusal(process: subprocess.Popen[bytes], log_file: Path) -> SkyError:
    """Return the error that the emulator reported before it was ready."""
    code = process.wait(STOP_S)
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    said = {key: text for key, _, text in (line.partition(": ") for line in lines[-2:])}
    kind = SkyUnavailable if code == EXIT_UNAVAILABLE else SkyError
    return kind(said.get("error", f"the emulator exited with code {code}"), hint=said.get("hint"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
