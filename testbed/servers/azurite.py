"""Azurite: Azure Blob Storage. It is slow (tens of MB/s): use it for functional tests, not for speed."""

from __future__ import annotations

from testbed.servers.install import npm_package, require
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
PUBLISHED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's well-known key, which is in its documentation. It gives access to nothing else."""


def azurite() -> Server:
    """Start Azurite's blob service."""
    package = npm_package("azurite", VERSION)
    folder, port = temporary_folder("azurite"), free_port()
    command = [
        require("node"), str(package / "dist" / "src" / "blob" / "main.js"), "--silent", "--skipApiVersionCheck",
        "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
    ]  # fmt: skip
    process = spawn(command, folder)
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder)
    client = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": PUBLISHED_KEY,
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}",
    }
    return Server("azurite", endpoint, client, process, folder, ACCOUNT, PUBLISHED_KEY)
