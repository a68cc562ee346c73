"""s3rver: S3 over a folder, in JavaScript. Many projects test with it. Its credentials are fixed."""

from __future__ import annotations

from testbed.servers.clients import s3_environment
from testbed.servers.install import npm_package, require
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

VERSION = "3.7.1"
REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "S3RVER", "S3RVER"
"""The only credentials that it accepts, from its documentation."""


def s3rver() -> Server:
    """Start s3rver."""
    package = npm_package("s3rver", VERSION)
    folder, port = temporary_folder("s3rver"), free_port()
    (folder / "data").mkdir()
    command = [
        require("node"), str(package / "bin" / "s3rver.js"), "--silent", "--no-vhost-buckets",
        "--address", "127.0.0.1", "--port", str(port), "--directory", str(folder / "data"),
    ]  # fmt: skip
    # Its pages of listings have tokens in a cipher that OpenSSL 3 only knows as a legacy one.
    process = spawn(command, folder, {"NODE_OPTIONS": "--openssl-legacy-provider"})
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder)
    client = s3_environment(endpoint, REGION, ACCESS_KEY, SECRET_KEY)
    return Server("s3rver", endpoint, client, process, folder, ACCESS_KEY, SECRET_KEY)
