"""versitygw: S3 over a folder. The first choice for S3: it checks signatures and checksums and uses little CPU.

It cannot store ``a`` beside ``a/b``, nor ``a//b``. Its bucket names need three letters or more.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from testbed.servers.clients import s3_environment
from testbed.servers.install import go_program
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering
from testbed.servers.tls import make_certificates

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
REGION = "us-east-1"


def versitygw(
    tls: bool = False,
    data_parent: Path | None = None,
    workers: int | None = None,
    address: str = "127.0.0.1",
    secret: str | None = None,
    region: str = REGION,
    bucket_links: bool = False,
) -> Server:
    """Start versitygw. Its data is below ``data_parent``, by default the temporary folder.

    It listens at an ``address`` of this host. Its secret key is random unless given.
    With ``bucket_links`` a link to the folder of a bucket is a bucket, too.
    """
    program = go_program("versitygw", MODULE, VERSION)
    folder = temporary_folder("versitygw", data_parent)
    for name in ("data", "versions"):
        (folder / name).mkdir()
    access, secret, port = "testbed", secret or secrets.token_hex(16), free_port()
    command = [str(program), "--port", f"{address}:{port}", "--keep-alive", "--quiet", "--region", region]
    ca_file = None
    if tls:
        made = make_certificates(folder / "tls", address)
        ca_file = made.ca
        command += ["--cert", str(made.certificate), "--key", str(made.key)]
    command += ["posix", *(["--bucketlinks"] if bucket_links else [])]
    command += ["--versioning-dir", str(folder / "versions"), str(folder / "data")]
    environment = {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}
    if workers is not None:
        environment["GOMAXPROCS"] = str(workers)
    process = spawn(command, folder, environment)
    endpoint = f"{'https' if tls else 'http'}://{address}:{port}"
    wait_until_answering(process, endpoint, folder, ca_file)
    client = s3_environment(endpoint, region, access, secret)
    return Server("versitygw", endpoint, client, process, folder, access, secret, ca_file)
