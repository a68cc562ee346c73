"""Retention and legal holds of single objects, on servers with Object Lock and on those without."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place, S3Place
from testbed.s3 import S3Error
from testbed.trees import MIB, payload

SERVERS = [
    "moto",
    pytest.param("minio", marks=pytest.mark.slow),
    pytest.param("versitygw", marks=pytest.mark.slow),
]
LOCKED = ["--object-lock-mode", "governance", "--retain-until", "2d", "--legal-hold"]
PREFIX = "x-amz-object-lock-"


def locking(there: Place) -> S3Place:
    """Give the place a bucket with Object Lock."""
    assert isinstance(there, S3Place)
    there.bucket = f"locked-{secrets.token_hex(6)}"
    there.url = f"s3://{there.bucket}"
    there.client.create_bucket(there.bucket, locks=True)
    return there


def assert_locked(there: S3Place, key: str) -> None:
    """Check the lock that the store states, and that it refuses to delete the version."""
    headers = there.headers(key)
    assert headers[f"{PREFIX}mode"] == "GOVERNANCE"
    assert headers[f"{PREFIX}legal-hold"] == "ON"
    until = datetime.fromisoformat(headers[f"{PREFIX}retain-until-date"][:19]).replace(tzinfo=timezone.utc)
    assert abs(until - datetime.now(timezone.utc) - timedelta(days=2)) < timedelta(hours=1)
    ((_, version),) = there.client.versions(there.bucket, key)
    with pytest.raises(S3Error):
        there.client.delete_version(there.bucket, key, version)


@pytest.mark.parametrize("kind", SERVERS)
def test_what_is_written_is_kept(command: Command, place: Callable[[str], Place], tmp_path: Path, kind: str) -> None:
    there = locking(place(kind))
    to, source = there.flags("dst"), tmp_path / "source"
    source.mkdir()
    (source / "small").write_bytes(b"small")
    (source / "large").write_bytes(payload("large", 11 * MIB))
    command.run("cp", "-r", source, there.url, "--chunk-size", "5MiB", *LOCKED, *to).expect(0)
    command.run("cp", "-", f"{there.url}/piped", *LOCKED, *to, stdin=b"piped").expect(0)
    command.run("cp", f"{there.url}/small", f"{there.url}/copied", *LOCKED, *there.flags("src"), *to).expect(0)
    command.run("cp", source / "small", f"{there.url}/free", *to).expect(0)
    # moto ignores the headers of uploads of several parts and of copies.
    for key in ("small", "piped") if kind == "moto" else ("small", "large", "piped", "copied"):
        assert_locked(there, key)
    assert f"{PREFIX}mode" not in there.headers("free")
    assert there.get("large") == payload("large", 11 * MIB)


@pytest.mark.parametrize("kind", ["moto", "rclone", "versitygw", "gcs", "azure", "file"])
def test_a_place_without_locks_is_refused(
    command: Command, place: Callable[[str], Place], tmp_path: Path, kind: str
) -> None:
    there, source = place(kind), tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    for words in (
        ["cp", "-r", source, there.url],
        ["cp", source / "a", f"{there.url}/a"],
        ["cp", "-", f"{there.url}/a"],
    ):
        done = command.run(*words, *LOCKED, *there.flags("dst"), stdin=b"a")
        assert done.code in (1, 2)
        assert "Object Lock" in done.stderr and "hint: leave out --object-lock-mode" in done.stderr
    assert there.sizes() == {}


def test_half_a_retention_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    for words in (["--object-lock-mode", "compliance"], ["--retain-until", "2030-01-31"]):
        assert "needs" in command.run("cp", tmp_path / "a", "s3://bucket/a", *words).expect(2).stderr
    past = ["--object-lock-mode", "COMPLIANCE", "--retain-until", "2020-01-31"]
    assert "has passed" in command.run("cp", tmp_path / "a", "s3://bucket/a", *past).expect(2).stderr
