"""Ceph's S3 gateway with the least cluster that it needs, unpacked from Debian's packages: Debian only, no root.

It has the name of its zone group, not that of a region, as its location.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from testbed.servers.clients import s3_environment
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

PACKAGES = (
    "ceph-base", "ceph-common", "ceph-mon", "ceph-osd", "libaio1", "libboost-context1.74.0", "libboost-python1.74.0",
    "libboost-thread1.74.0", "libcephfs2", "libdaxctl1", "libfmt9", "libfuse2", "libgoogle-perftools4", "libibverbs1",
    "libleveldb1d", "libndctl6", "libnl-3-200", "libnl-route-3-200", "liboath0", "libpmem1", "librabbitmq4",
    "librados2", "libradosstriper1", "librbd1", "librdmacm1", "librgw2", "libsnappy1v5", "libtcmalloc-minimal4",
    "python3-ceph-argparse", "python3-ceph-common", "python3-prettytable", "python3-rados", "python3-wcwidth",
    "radosgw",
)  # fmt: skip
REGION = "default"
START_S = 180.0
"""Timeout for the first answer: three programs start, one after the other."""


def ceph() -> Server:
    """Start Ceph with one monitor, one store in memory and one gateway. Its only user may do everything."""
    from testbed.clouds.debian_packages import unpacked  # It imports this package.

    root = unpacked("ceph-16", PACKAGES)
    folder, port = temporary_folder("ceph"), free_port()
    access, secret = "testbedkey", "testbedsecret"
    program = Path(__file__).with_name("ceph_cluster.py")
    words = [str(root), str(folder), str(free_port()), str(port), access, secret]
    process = spawn([shutil.which("python3") or sys.executable, "-I", "-S", str(program), *words], folder)
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder, timeout_s=START_S)
    client = s3_environment(endpoint, REGION, access, secret)
    return Server("ceph", endpoint, client, process, folder, access, secret)
