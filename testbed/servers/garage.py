"""Garage: a distributed store, here with one node. It is built from Rust's package registry, which takes minutes."""

from __future__ import annotations

import secrets

from testbed.servers.clients import s3_environment
from testbed.servers.install import cargo_program
from testbed.servers.process import Server, free_port, spawn, temporary_folder, wait_until_answering

VERSION = "2.5.0"
#: Without the key-value API, metrics and a second database engine, it builds faster.
FEATURES = ("bundled-libs", "sqlite")
REGION = "us-east-1"


def garage() -> Server:
    """Start Garage. Its only key may do everything."""
    program = cargo_program("garage", VERSION, FEATURES)
    folder, port = temporary_folder("garage"), free_port()
    access, secret = f"GK{secrets.token_hex(12)}", secrets.token_hex(32)
    configuration = folder / "garage.toml"
    configuration.write_text(
        f"""
metadata_dir = "{folder / "meta"}"
data_dir = "{folder / "data"}"
db_engine = "sqlite"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:{free_port()}"
rpc_secret = "{secrets.token_hex(32)}"

[s3_api]
s3_region = "{REGION}"
api_bind_addr = "127.0.0.1:{port}"
"""
    )
    configuration.chmod(0o600)
    environment = {"GARAGE_DEFAULT_ACCESS_KEY": access, "GARAGE_DEFAULT_SECRET_KEY": secret, "RUST_LOG": "warn"}
    command = [str(program), "-c", str(configuration), "server", "--single-node", "--default-access-key"]
    process = spawn(command, folder, environment)
    endpoint = f"http://127.0.0.1:{port}"
    wait_until_answering(process, endpoint, folder)
    client = s3_environment(endpoint, REGION, access, secret)
    return Server("garage", endpoint, client, process, folder, access, secret)
