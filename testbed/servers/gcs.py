"""Google's XML API, served by moto (``gcs_dialect.py`` describes what it covers)."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.servers.install import python_environment
from testbed.servers.moto import PART_BYTES_MIN, VERSION
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

_DIALECT = str(Path(__file__).with_name("gcs_dialect.py"))


def gcs(address: str = "127.0.0.1") -> Server:
    """Start moto behind Google's dialect, at an address of this host. Clients get a service account that needs no
    token request.
    """
    environment = python_environment(f"moto-{VERSION}", [f"moto[server]=={VERSION}"])
    folder, port = temporary_folder("gcs"), free_port()
    python = str(environment / "bin" / "python")
    # -I: otherwise the script's folder, which has its own moto.py, would come first on the path.
    process = spawn([python, "-I", _DIALECT, address, str(port)], folder, {"S3_UPLOAD_PART_MIN_SIZE": PART_BYTES_MIN})
    endpoint = f"http://{address}:{port}"
    wait_until_answering(process, f"{endpoint}/moto-api/", folder)
    account = folder / "service-account.json"
    no_key = {"client_email": "", "private_key": "", "private_key_id": ""}
    account.write_text(json.dumps({"gcs_base_url": endpoint, "disable_oauth": True, **no_key}))
    client = {"GOOGLE_SERVICE_ACCOUNT": str(account), "STORAGE_EMULATOR_HOST": endpoint}
    return Server("gcs", endpoint, client, process, folder, "gcs", "gcs")
