"""The store crate's own conformance suite, against every server of the testbed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.azure import Azure
from testbed.s3 import S3
from testbed.servers import Server

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "conformance"
SUITE_TIMEOUT_S = 1_800
#: A failed assertion: its line and those after it. The end of a long output does not include it.
PANIC = re.compile(r"^thread .* panicked at .*(?:\n.*){0,4}", re.MULTILINE)
MOTO_CANNOT = [
    "authentication",
    "refuses_damage",
    "copy_preconditions",
    "abort_is_final",
    "upload_checksums",
    "upload_conditions",
    "replacing_copy_conditions",
]
CANNOT = {
    "versitygw": [
        "empty_segments",
        "dot_segments",
        "file_beside_directory",
        "long_segments",
        "copy_part",
        "replacing_copy_conditions",
    ],
    "moto": MOTO_CANNOT,
    "gcs": [*MOTO_CANNOT, "copy_part", "put_conditions"],
    "rclone": [
        "authentication",
        "copy_part",
        "copy_preconditions",
        "dot_segments",
        "empty_segments",
        "file_beside_directory",
        "long_segments",
        "markers",
        "put_conditions",
        "refuses_damage",
        "replaced_parts",
        "replacing_copy_conditions",
        "upload_checksums",
        "upload_conditions",
    ],
    "s3rver": [
        "abort",
        "abort_is_final",
        "authentication",
        "byte_order",
        "copy_part",
        "copy_preconditions",
        "dot_segments",
        "empty_segments",
        "first_byte",
        "long_segments",
        "pending_uploads",
        "put_conditions",
        "refuses_damage",
        "replacing_copy_conditions",
        "upload_checksums",
        "upload_conditions",
    ],
    "seaweedfs": ["backslash", "byte_order", "dot_segments", "empty_segments", "long_segments", "missing_bucket"],
    "minio": [
        "copy_part",
        "dot_segments",
        "empty_segments",
        "file_beside_directory",
        "long_segments",
        "replacing_copy_conditions",
    ],
    "ceph": [
        "copy_preconditions",
        "put_conditions",
        "refuses_damage",
        "replacing_copy_conditions",
        "upload_checksums",
        "upload_conditions",
    ],
    "azurite": ["backslash", "dot_segments", "abort_is_final", "upload_checksums"],
}
"""Features that each server lacks. The suite reports the tests that it skips for them."""


def test_the_table_of_the_documentation_has_the_features_of_each_server() -> None:
    lines = (ROOT / "docs" / "reference" / "stores.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    start = next(number for number, row in enumerate(rows) if row[0] == "feature" and "versitygw" in row)
    servers = rows[start][2:]
    lacks: dict[str, set[str]] = {server: set() for server in servers}
    for row in rows[start + 2 :]:
        for server, has in zip(servers, row[2:], strict=True):
            if has == "no":
                lacks[server].add(row[1].strip("`"))
    assert lacks == {server: set(features) for server, features in CANNOT.items()}


def s3_store(server: Server) -> dict[str, Any]:
    S3(server.endpoint, server.access_key, server.secret_key).create_bucket(BUCKET)
    return {"url": f"s3://{BUCKET}", "endpoint": server.endpoint, "region": server.environment["AWS_REGION"]}


def gcs_store(server: Server) -> dict[str, Any]:
    S3(server.endpoint, server.access_key, server.secret_key).create_bucket(BUCKET)
    return {"url": f"gs://{BUCKET}", "endpoint": server.endpoint}


def azure_store(server: Server) -> dict[str, Any]:
    Azure(server.endpoint, server.access_key, server.secret_key).create_container(BUCKET)
    return {"url": f"az://{server.access_key}/{BUCKET}", "endpoint": server.environment["AZURE_STORAGE_ENDPOINT"]}


@pytest.mark.parametrize(
    ("fixture", "describe"),
    [
        pytest.param("s3_server", s3_store, id="versitygw"),
        pytest.param("moto_server", s3_store, id="moto", marks=pytest.mark.slow),
        pytest.param("gcs_server", gcs_store, id="gcs"),
        pytest.param("azure_server", azure_store, id="azurite"),
        pytest.param("rclone_server", s3_store, id="rclone", marks=pytest.mark.slow),
        pytest.param("s3rver_server", s3_store, id="s3rver", marks=pytest.mark.slow),
        pytest.param("seaweedfs_server", s3_store, id="seaweedfs", marks=pytest.mark.slow),
        pytest.param("minio_server", s3_store, id="minio", marks=pytest.mark.slow),
        pytest.param("ceph_server", s3_store, id="ceph", marks=pytest.mark.slow),
    ],
)
def test_the_suite_passes_on(
    request: pytest.FixtureRequest, fixture: str, describe: Callable[[Server], dict[str, Any]]
) -> None:
    server: Server = request.getfixturevalue(fixture)
    store = {"name": server.name, **describe(server), "lacks": CANNOT[server.name]}
    environment = {**os.environ, **server.environment, "TRADEWIND_TEST_STORES": json.dumps([store])}
    for name in ("AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
        environment.pop(name, None)  # The suite gets its endpoints as arguments.
    done = subprocess.run(
        ["cargo", "test", "--release", "--workspace", "--locked", "--test", "conformance", "--", "--nocapture"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, "\n".join(PANIC.findall(done.stderr)) + said[-6_000:]
    assert re.search(r"test result: ok\. [1-9]\d* passed", said), said[-2_000:]
    assert f"on {server.name}\n" in done.stderr, "the suite did not run on this server"
