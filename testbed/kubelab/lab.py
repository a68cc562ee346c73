"""A lab: start it, break it, end it. All its processes are in one PID namespace and end with it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.kubelab import node
from testbed.kubelab.cluster import HOLD, PID, Cluster
from testbed.kubelab.install import installed
from testbed.kubelab.node import BRIDGE, GATEWAY, control_groups
from testbed.kubelab.pki import write_kubeconfig

__all__ = ["Lab", "LabError", "kubelab", "serve", "wait_for_lock"]

LOCK = "tradewind-kubelab.lock"
"""Lock file, in the folder of temporary files: one lab runs on a machine at a time."""
END_S = 10.0
ANSWER_S = 60.0
SUPERVISION_S = 0.2
ISOLATED = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
"""Settings of the machine that a kubelet changes."""


class LabError(RuntimeError):
    """A lab did not start. The message has the end of its log."""


class Lab:
    """A running lab."""

    def __init__(self, folder: Path, regions: Sequence[str], address: str = GATEWAY) -> None:
        self.folder, self.regions = folder, tuple(regions)
        self.address = address
        """Address at which pods and nodes reach this machine."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's configuration, with a context per region."""
        return self.folder / "kubeconfig"

    def kubectl(self, region: str, *words: str, given: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints."""
        program = str(installed() / "bin" / "kubernetes")
        command = [program, "kubectl", "--kubeconfig", str(self.kubeconfig), "--context", region, *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def apply(self, region: str, manifest: Mapping[str, object] | str) -> None:
        """Create or change objects, given as a document or as YAML."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        self.kubectl(region, "apply", "-f", "-", given=text)

    def stop_api(self, region: str) -> None:
        """End the API server of a region. Its nodes and pods keep running."""
        (self.folder / region / HOLD).touch()
        os.kill(_pid_in(self._init, int((self.folder / region / PID).read_text())), signal.SIGKILL)

    def start_api(self, region: str) -> None:
        """Start the API server of a region again, and wait until it answers."""
        (self.folder / region / HOLD).unlink()
        deadline_s = time.monotonic() + ANSWER_S
        while not self._answers(region):
            if time.monotonic() > deadline_s:
                raise LabError(f"the API server of {region} does not answer")
            time.sleep(0.1)

    def _answers(self, region: str) -> bool:
        try:
            self.kubectl(region, "get", "--raw", "/readyz")
        except LabError:
            return False
        return True

    def stop_node(self, region: str, number: int = 0) -> None:
        """End a node with all its pods, as if it had lost its power."""
        folder = self._node_folder(region, number)
        (folder / node.HOLD).touch()
        os.kill(_pid_in(self._init, int((folder / node.PID).read_text())), signal.SIGKILL)

    def start_node(self, region: str, number: int = 0) -> None:
        """Start a node again, and wait until it is ready."""
        (self._node_folder(region, number) / node.HOLD).unlink()
        name = f"node/{region}-n{number}"
        self.kubectl(region, "wait", "--for=condition=Ready", name, f"--timeout={ANSWER_S:.0f}s")

    def in_network_of(self, region: str, number: int = 0) -> list[str]:
        """Return the words before a command that is to run in the network of a node, where Services are reached."""
        pid = _pid_in(self._init, int((self._node_folder(region, number) / node.PID).read_text()))
        return ["nsenter", f"--net=/proc/{pid}/ns/net"]

    def _node_folder(self, region: str, number: int) -> Path:
        return self.folder / region / f"{region}-n{number}"

    @property
    def _init(self) -> int:
        """Process id of the namespace's first process."""
        outer = int((self.folder / "pid").read_text())
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])


def wait_for_lock(file: int, on_wait: Callable[[], object]) -> None:
    """Lock a file. If another process holds it, call `on_wait` and wait."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def kubelab(
    folder: Path,
    regions: Mapping[str, int],
    *,
    images: Sequence[Path] = (),
    on_wait: Callable[[], object] = lambda: None,
) -> Iterator[Lab]:
    """Run a lab in a new folder: for each region a cluster with that many nodes.

    Waits for another lab to end, and calls `on_wait` before it does.
    Raises InstallError if its programs cannot be built, LabError if it does not start.
    """
    programs = installed()
    with Path(tempfile.gettempdir(), LOCK).open("w") as lock:
        wait_for_lock(lock.fileno(), on_wait)
        _remove_left(folder)
        folder.mkdir(parents=True)
        settings = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}
        arguments = ["serve", str(folder), str(programs), _words(regions), *map(str, images)]
        with (folder / "lab.log").open("wb") as log:
            outer = subprocess.Popen(
                [*ISOLATED, sys.executable, "-m", "testbed.kubelab", *arguments],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,  # It ends with this process.
                stdout=log,
                stderr=log,
            )
        (folder / "pid").write_text(str(outer.pid), encoding="ascii")
        lab = Lab(folder, list(regions))
        try:
            while not lab.kubeconfig.exists():
                if outer.poll() is not None:
                    raise LabError((folder / "lab.log").read_text()[-2000:])
                time.sleep(0.1)
            yield lab
        finally:
            outer.kill()
            outer.communicate()
            _remove_left(folder)
            for name, value in settings.items():
                Path("/proc/sys", name).write_text(value)


def serve(folder: Path, programs: Path, regions: Mapping[str, int], images: Sequence[Path]) -> None:
    """Run a lab in this process, which is the first of a PID namespace, until standard input ends."""
    from concurrent.futures import ThreadPoolExecutor

    subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], check=True)
    subprocess.run(["ip", "addr", "add", f"{GATEWAY}/16", "dev", BRIDGE], check=True)
    subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
    clusters = [
        Cluster(number, name, folder / name, programs, nodes) for number, (name, nodes) in enumerate(regions.items())
    ]
    with ThreadPoolExecutor(len(clusters)) as pool:
        for _ in pool.map(lambda cluster: cluster.start(images), clusters):
            pass
    write_kubeconfig(folder / "kubeconfig", [cluster.entry() for cluster in clusters])
    while not select.select([sys.stdin], [], [], SUPERVISION_S)[0]:
        for cluster in clusters:
            cluster.supervise()


def _words(regions: Mapping[str, int]) -> str:
    return ",".join(f"{name}={nodes}" for name, nodes in regions.items())


def _remove_left(folder: Path) -> None:
    """Remove what a lab leaves behind when its processes are gone: bridge, control groups, folders."""
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)
    deadline_s = time.monotonic() + END_S
    while (left := _groups_left()) and time.monotonic() < deadline_s:
        for group in left:
            with suppress(OSError):
                group.rmdir()
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _groups_left() -> list[Path]:
    """Return the control groups of labs, the inner ones first."""
    found = [group for root in control_groups() for group in root.glob("kubelab/**/") if group.is_dir()]
    return sorted(found, key=lambda group: -len(group.parts))


def _pid_in(init: int, inner: int) -> int:
    """Return this namespace's id of a process with the id `inner` in the namespace whose first process is `init`."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if not entry.name.isdecimal() or os.readlink(entry / "ns" / "pid") != namespace:
                continue
            line = next(line for line in (entry / "status").read_text().splitlines() if line.startswith("NSpid:"))
            if int(line.split()[-1]) == inner:
                return int(entry.name)
    raise LabError(f"process {inner} of the lab is gone")
