"""Run Ceph's daemons on loopback: ``python -I -S ceph_cluster.py ROOT FOLDER MON_PORT S3_PORT ACCESS SECRET``.

ROOT has the unpacked packages. All data is in memory. The daemons are in the process group of this program, which ends
when one of them does.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

STEP_S = 60
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon_port}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}/sockets
admin socket = {folder}/sockets/$name.asok
log file = {folder}/$name.log
keyring = {folder}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
mon allow pool size one = true
osd crush chooseleaf type = 0
ms bind msgr2 = false
erasure code dir = {libraries}/ceph/erasure-code
osd class dir = {libraries}/rados-classes
plugin dir = {libraries}/ceph
[mon.a]
mon data = {folder}/mon
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
# The place of the store is set by the code below: a store in memory does not find it by itself.
osd class update on start = false
osd crush update on start = false
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{s3_port}
rgw run sync thread = false
"""


class Cluster:
    """Ceph's programs and their files."""

    def __init__(self, root: Path, folder: Path, mon_port: str, s3_port: str) -> None:
        self.root, self.folder, self.fsid, self.mon_port = root, folder, str(uuid.uuid4()), mon_port
        libraries = f"{root}/usr/lib/x86_64-linux-gnu"
        paths = [libraries, f"{libraries}/ceph", f"{root}/usr/lib/ceph", f"{root}/lib/x86_64-linux-gnu"]
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(paths),
            "PYTHONPATH": f"{root}/usr/lib/python3/dist-packages",
            "CEPH_CONF": f"{folder}/ceph.conf",
        }
        for name in ("sockets", "mon", "osd"):
            (folder / name).mkdir()
        places = {"folder": folder, "libraries": libraries}
        configuration = CONFIGURATION.format(fsid=self.fsid, mon_port=mon_port, s3_port=s3_port, **places)
        (folder / "ceph.conf").write_text(configuration, encoding="utf-8")

    def run(self, program: str, *words: str) -> None:
        """Run one of the programs to its end."""
        command = [f"{self.root}/usr/bin/{program}", *words]
        if program == "ceph":  # A script of the system's Python, whose version its library needs.
            command.insert(0, "/usr/bin/python3")
        subprocess.run(command, env=self.environment, check=True, timeout=STEP_S)

    def start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a daemon."""
        return subprocess.Popen([f"{self.root}/usr/bin/{program}", *words, "-f"], env=self.environment)

    def up(self, access: str, secret: str) -> list[subprocess.Popen[bytes]]:
        """Start everything, the gateway last, and return the daemons."""
        keys, monmap = f"{self.folder}/keyring", f"{self.folder}/monmap"
        self.run("ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        address = f"[v1:127.0.0.1:{self.mon_port}]"
        self.run("monmaptool", "--create", "--addv", "a", address, "--fsid", self.fsid, monmap)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keys)
        monitor = self.start("ceph-mon", "-i", "a")
        self.run("ceph-osd", "-i", "0", "--mkfs")
        self.run("ceph", "osd", "new", (self.folder / "osd" / "fsid").read_text(encoding="utf-8").strip(), "0")
        self.run("ceph", "osd", "crush", "add", "osd.0", "1.0", "host=localhost", "root=default")
        store = self.start("ceph-osd", "-i", "0")
        user = ("--uid=testbed", "--display-name=testbed", f"--access-key={access}", f"--secret={secret}")
        self.run("radosgw-admin", "user", "create", *user)
        return [monitor, store, self.start("radosgw", "-n", "client.rgw")]


def main() -> None:
    """Start the cluster and wait until a daemon ends."""
    # The daemons take seconds to end, and there is nothing to save.
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    root, folder, mon_port, s3_port, access, secret = sys.argv[1:]
    try:
        daemons = Cluster(Path(root), Path(folder), mon_port, s3_port).up(access, secret)
        while all(daemon.poll() is None for daemon in daemons):
            time.sleep(1)
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
