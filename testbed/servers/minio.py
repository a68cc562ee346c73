"""MinIO: S3 over a folder. Its last version that is in Go's module proxy is built from source, which takes minutes.

It refuses keys whose segments are longer than a file name, or ``.`` and ``..``.
"""

from __future__ import annotations

import secrets

from testbed.servers.clients import s3_environment
from testbed.servers.install import go_program
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering
from testbed.servers.tls import make_certificates

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
MODULE = "github.com/minio/minio"
REGION = "us-east-1"


def minio(tls: bool = False) -> Server:
    """Start MinIO with one folder. It asks nobody for updates and shows no web page."""
    program = go_program("minio", MODULE, VERSION)
    folder, port = temporary_folder("minio"), free_port()
    access, secret = "testbedkey", secrets.token_hex(16)
    command = [
        str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}",
        "--console-address", f"127.0.0.1:{free_port()}", "--certs-dir", str(folder / "certs"), str(folder / "data"),
    ]  # fmt: skip
    ca_file = None
    if tls:
        made = make_certificates(folder / "certs")
        ca_file = made.ca
        made.certificate.rename(folder / "certs" / "public.crt")
        made.key.rename(folder / "certs" / "private.key")
    environment = {
        "MINIO_ROOT_USER": access,
        "MINIO_ROOT_PASSWORD": secret,
        "MINIO_SITE_REGION": REGION,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "MINIO_CI_CD": "1",
    }
    process = spawn(command, folder, environment)
    endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    wait_until_answering(process, f"{endpoint}/bucket/key", folder, ca_file)  # 503 until it has its folder.
    client = s3_environment(endpoint, REGION, access, secret)
    return Server("minio", endpoint, client, process, folder, access, secret, ca_file)
