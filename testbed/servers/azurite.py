"""Azurite: Azure Blob Storage. It is slow (tens of MB/s): use it for functional tests, not for speed."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping

from testbed.servers.install import npm_package, require
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering
from testbed.servers.tls import make_certificates

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
PUBLISHED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's well-known key, which is in its documentation. It gives access to nothing else."""


def azurite(oauth: bool = False, more_accounts: Mapping[str, str] | None = None) -> Server:
    """Start Azurite's blob service, with `more_accounts`: their keys by name.

    With `oauth` it uses HTTPS and accepts tokens of Entra ID, whose signature it does not check (:func:`token`).
    """
    package = npm_package("azurite", VERSION)
    folder, port = temporary_folder("azurite"), free_port()
    command = [
        require("node"), str(package / "dist" / "src" / "blob" / "main.js"), "--silent", "--skipApiVersionCheck",
        "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder),
    ]  # fmt: skip
    ca_file = None
    if oauth:
        made = make_certificates(folder / "tls")
        ca_file = made.ca
        command += ["--oauth", "basic", "--cert", str(made.certificate), "--key", str(made.key)]
    accounts = {ACCOUNT: PUBLISHED_KEY, **(more_accounts or {})}
    known = {"AZURITE_ACCOUNTS": ";".join(f"{name}:{key}" for name, key in accounts.items())}
    process = spawn(command, folder, known)
    endpoint = f"{'https' if oauth else 'http'}://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder, ca_file)
    client = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": PUBLISHED_KEY,
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}",
    }
    return Server("azurite", endpoint, client, process, folder, ACCOUNT, PUBLISHED_KEY, ca_file)


def azurite_oauth() -> Server:
    """Start Azurite's blob service as :func:`azurite` does with `oauth`."""
    return azurite(oauth=True)


def token(life_s: float = 3600) -> str:
    """Return a token as Entra ID gives one to a signed-in user."""
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/11111111-2222-3333-4444-555555555555/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + int(life_s),
        "oid": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        "tid": "11111111-2222-3333-4444-555555555555",
    }
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])
