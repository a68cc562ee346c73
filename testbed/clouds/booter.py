"""Boot machines: run their user data as root in a namespace each, and notice when they end.

A machine has its own network, processes, /run, /tmp and /var/lib; it shares this host's other files, its kernel and its
clock. It is killed when this process ends. What it writes to its console can be read here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.clouds.filters import set_filter
from testbed.clouds.lan import MachineNetwork, Place
from testbed.servers.process import guarded

__all__ = ["END_S", "BootedMachine", "Booter"]

_INIT = str(Path(__file__).with_name("boot_machine.sh"))
#: Time within which a killed machine has ended, on a busy host.
END_S = 30.0


@dataclass(eq=False)
class BootedMachine:
    """A running or ended machine. `id` is the cloud's name for it."""

    id: str
    region: str
    place: Place
    console_file: Path
    process: subprocess.Popen[bytes]
    booted_unix_s: float = field(default_factory=time.time)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        """Its address in its network."""
        return self.place.address

    @property
    def console(self) -> str:
        """The text that it has written to its console."""
        return self.console_file.read_text(encoding="utf-8", errors="replace")

    @property
    def init_pid(self) -> int | None:
        """This host's number of the machine's process 1; None before it runs or after its end."""
        with suppress(OSError, ValueError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            return int(children.split()[0]) if children.split() else None
        return None

    def pids(self, command: str = "") -> list[int]:
        """Return this host's numbers of the machine's processes whose command line contains `command`."""
        return [pid for pid in self._all_pids() if command in _command_line(pid)]

    def _all_pids(self) -> Iterator[int]:
        init = self.init_pid
        if init is None:
            return
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{init}/ns/pid")
            for entry in Path("/proc").iterdir():
                with suppress(OSError):
                    if entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace:
                        yield int(entry.name)

    def path(self, inside: str) -> Path:
        """Return the path by which this host reaches a file of the machine."""
        return Path(f"/proc/{self.init_pid}/root") / inside.lstrip("/")

    def kill(self) -> None:
        """End the machine at once, as if its power were cut."""
        self.process.send_signal(signal.SIGKILL)
        self.ended.wait(END_S)


class Booter:
    """Boots machines in a network. Use it as a context manager, which ends all machines."""

    def __init__(self, network: MachineNetwork, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.machines: dict[str, BootedMachine] = {}
        #: Environment variables of the machines of a region, by the region.
        self.environment: dict[str, dict[str, str]] = {}
        #: Rules of packet filters (`filters.py`) of the machines of a region, by the region; `*` for all others.
        self.filters: dict[str, str] = {}
        # A machine is killed when the thread ends that started it, so one thread starts all.
        self._starter = ThreadPoolExecutor(1, "starts machines")
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Booter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def living(self) -> list[BootedMachine]:
        """Return the machines that have not ended."""
        return [machine for machine in self.machines.values() if not machine.ended.is_set()]

    def boot(
        self, machine_id: str, user_data: str, region: str = "", on_end: Callable[[], None] | None = None
    ) -> BootedMachine:
        """Boot a machine, and return when it runs. `on_end` is called from another thread when it has ended."""
        place = self.network.place(region)
        user_file = self.folder / f"{machine_id}.user-data"
        console = self.folder / f"{machine_id}.console"
        user_file.write_text(user_data, encoding="utf-8")
        console.touch()
        words = [
            *("unshare", "--net"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("env", *(f"{name}={value}" for name, value in self.environment.get(region, {}).items())),
            *("sh", _INIT, str(user_file), str(console)),
        ]
        process = self._starter.submit(_start, words, console).result()
        machine = BootedMachine(machine_id, region, place, console, process)
        self.machines[machine_id] = machine
        threading.Thread(target=self._watch, args=(machine, on_end), daemon=True).start()
        inside = self._in_its_network(machine)
        self.network.attach(place, inside)
        if rules := self.filters.get(region, self.filters.get("*")):
            set_filter(inside, rules)
        assert process.stdin is not None
        with suppress(OSError):  # It has ended already; `on_end` says so.
            process.stdin.write(b"ready\n")
            process.stdin.flush()
        return machine

    def _in_its_network(self, machine: BootedMachine) -> int:
        """Return a process of the machine in its network namespace, once there is one."""
        deadline_s = time.monotonic() + END_S
        here = os.readlink("/proc/self/ns/net")
        while time.monotonic() < deadline_s and machine.process.poll() is None:
            init = machine.init_pid
            with suppress(OSError):
                if init is not None and os.readlink(f"/proc/{init}/ns/net") != here:
                    return init
            time.sleep(0.01)
        raise RuntimeError(f"machine {machine.id} did not boot: {machine.console}")

    def _watch(self, machine: BootedMachine, on_end: Callable[[], None] | None) -> None:
        machine.process.wait()
        if machine.process.stdin is not None:
            with suppress(OSError):
                machine.process.stdin.close()
        self.network.release(machine.place)
        machine.ended.set()
        if on_end is not None:
            on_end()

    def close(self) -> None:
        """End all machines."""
        for machine in self.machines.values():
            if machine.process.poll() is None:
                machine.process.kill()
        for machine in self.machines.values():
            machine.ended.wait(END_S)
        self._starter.shutdown()


def _start(words: list[str], console: Path) -> subprocess.Popen[bytes]:
    with console.open("ab") as errors:
        return subprocess.Popen(guarded(words), stdin=subprocess.PIPE, stderr=errors)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
