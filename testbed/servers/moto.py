"""moto: S3 in memory. The second S3 server: it accepts every key, but checks neither signatures nor checksums."""

from __future__ import annotations

from pathlib import Path

from testbed.servers.clients import s3_environment
from testbed.servers.install import python_environment
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

_PROGRAM = str(Path(__file__).with_name("moto_s3.py"))
VERSION = "5.2.5"
REGION = "us-east-1"
PART_BYTES_MIN = "1"
"""Minimum part size. moto's default is 5 MiB, but tests need objects of many tiny parts."""


def moto() -> Server:
    """Start moto's server."""
    environment = python_environment(f"moto-{VERSION}", [f"moto[server]=={VERSION}"])
    folder, port = temporary_folder("moto"), free_port()
    # -I: otherwise the script's folder would come first on the path.
    command = [str(environment / "bin" / "python"), "-I", _PROGRAM, "-H", "127.0.0.1", "-p", str(port)]
    process = spawn(command, folder, {"S3_UPLOAD_PART_MIN_SIZE": PART_BYTES_MIN})
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, f"{endpoint}/moto-api/", folder)
    client = s3_environment(endpoint, REGION, "testbed", "testbed")
    return Server("moto", endpoint, client, process, folder, "testbed", "testbed")
