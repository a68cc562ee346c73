"""Rows of the table of store features in `docs/reference/stores.md`, tried on real servers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import secrets
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Answer, HttpProxy, Rule
from testbed.places import AzurePlace, S3Place
from testbed.servers import Server, minio
from testbed.trees import MIB, payload, tree_hashes

CONTENT = payload("forms", 50_000)


def test_gzip_objects_keep_their_bytes_and_their_encoding(
    command: Command, s3: S3Place, azure_server: Server, tmp_path: Path
) -> None:
    packed, azure = gzip.compress(CONTENT), AzurePlace(azure_server, command)
    s3.client.put(s3.bucket, "k", packed, {"Content-Encoding": "gzip"})
    command.run("cp", f"{s3.url}/k", f"{azure.url}/k", *s3.flags("src"), *azure.flags("dst")).expect(0)
    assert azure.get("k") == packed and azure.headers("k")["content-encoding"] == "gzip"
    command.run("cp", f"{azure.url}/k", tmp_path / "k", *azure.flags("src")).expect(0)
    assert (tmp_path / "k").read_bytes() == packed


def test_every_request_to_a_bucket_whose_requester_pays_says_so(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    s3.put("d/k", CONTENT)
    s3.endpoint = proxy.endpoint
    command.run("cp", "-r", f"{s3.url}/d/", tmp_path / "d", *s3.flags("src"), "--src-requester-pays").expect(0)
    assert {each.request.headers.get("x-amz-request-payer") for each in proxy.exchanges} == {"requester"}


def test_objects_that_are_encrypted_with_kms_are_copied(
    command: Command, moto_server: Server, s3: S3Place, tmp_path: Path
) -> None:
    place = S3Place(moto_server, command)
    place.client.put(place.bucket, "k", CONTENT, {"x-amz-server-side-encryption": "aws:kms"})
    assert place.headers("k")["x-amz-server-side-encryption"] == "aws:kms"
    done = command.run("cp", "--json", f"{place.url}/k", f"{s3.url}/k", *place.flags("src"), *s3.flags("dst")).expect(0)
    assert s3.get("k") == CONTENT
    assert not any("md5" in proof for proof in done.summary["proofs"]), "the ETag is no MD5"


CUSTOMER_KEYS = {
    "InvalidRequest": "The object was stored using a form of Server Side Encryption. The correct parameters must be "
    "provided to retrieve the object.",
    "ResourceIsEncryptedWithCustomerEncryptionKey": "The target object is encrypted by a customer-supplied key.",
}
"""The answers of Amazon and Google to a read without the key."""


def put_with_customer_key(s3: S3Place, proxy: HttpProxy, code: str, size: int, *, count: int, key: str) -> Rule:
    """Put `count` objects below `d`, and return the rule that refuses reads of those whose path has `key`."""
    for number in range(count):
        s3.put(f"d/{number}", payload(str(number), size))
    s3.endpoint = proxy.endpoint
    return proxy.add(Rule(Answer(400, code, CUSTOMER_KEYS[code]), when=lambda request: key in request.path))


def assert_asked_once(proxy: HttpProxy, refused: Rule) -> None:
    asked = [(each.request.method, each.request.path) for each in proxy.requests(refused.when)]
    assert len(asked) == len(set(asked)), "nothing is retried"


@pytest.mark.parametrize("code", CUSTOMER_KEYS)
@pytest.mark.parametrize("size", [10, 6 * MIB], ids=["small", "large"])
def test_an_object_with_a_customer_key_fails_alone_and_is_not_retried(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path, code: str, size: int
) -> None:
    refused = put_with_customer_key(s3, proxy, code, size, count=4, key="/d/2")
    done = command.run("cp", "-r", f"{s3.url}/d", f"{tmp_path / 'd'}/", "--chunk-size", "5MiB", *s3.flags("src"))
    assert done.expect(4).stderr.count(f"{s3.url}/d/2: ") == 1 and "error: 1 of 4 objects failed" in done.stderr
    assert "hint: Tradewind cannot send such keys: leave these objects out with --exclude" in done.stderr
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["0", "1", "3"]
    assert_asked_once(proxy, refused)


@pytest.mark.parametrize("code", CUSTOMER_KEYS)
@pytest.mark.parametrize("size", [10, 6 * MIB], ids=["small", "large"])
def test_a_source_whose_objects_all_need_a_customer_key_has_one_line(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path, code: str, size: int
) -> None:
    refused = put_with_customer_key(s3, proxy, code, size, count=3, key="/d/")
    words = ["--chunk-size", "5MiB", *s3.flags("src")]
    done = command.run("cp", "-r", f"{s3.url}/d", f"{tmp_path / 'd'}/", *words).expect(1)
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert CUSTOMER_KEYS[code].rstrip(".") in error
    assert "hint: Tradewind cannot send such keys: leave these objects out with --exclude" in done.stderr
    assert not [path for path in (tmp_path / "d").rglob("*") if path.is_file()]
    assert_asked_once(proxy, refused)


@pytest.mark.parametrize("code", CUSTOMER_KEYS)
def test_one_object_that_needs_a_customer_key_is_refused_before_anything_moves(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path, code: str
) -> None:
    refused = put_with_customer_key(s3, proxy, code, 10, count=1, key="/d/0")
    done = command.run("cp", f"{s3.url}/d/0", tmp_path / "copy" / "0", *s3.flags("src"))
    assert done.code not in (0, 4) and f"{s3.url}/d/0" in done.stderr
    assert "hint: Tradewind cannot send such keys" in done.stderr
    assert not (tmp_path / "copy").exists()
    assert_asked_once(proxy, refused)


def test_requests_without_a_signature_have_no_credentials(
    command: Command, moto_server: Server, tmp_path: Path
) -> None:
    place = S3Place(moto_server, command)
    place.client.put(place.bucket, "k", CONTENT, {"x-amz-acl": "public-read"})
    with HttpProxy(moto_server.endpoint) as proxy:
        flags = ["--src-endpoint", proxy.endpoint, "--src-region", "us-east-1", "--src-no-sign"]
        command.run("cp", f"{place.url}/k", tmp_path / "k", *flags).expect(0)
        assert (tmp_path / "k").read_bytes() == CONTENT
        assert proxy.exchanges and not any("authorization" in each.request.headers for each in proxy.exchanges)


@pytest.mark.slow
def test_minio_keeps_objects_with_customer_keys(command: Command, tmp_path: Path) -> None:
    """The real answers of a server: each such object is named, and the destination has no part of it."""
    key = secrets.token_bytes(32)
    headers = {
        "x-amz-server-side-encryption-customer-algorithm": "AES256",
        "x-amz-server-side-encryption-customer-key": base64.b64encode(key).decode(),
        "x-amz-server-side-encryption-customer-key-MD5": base64.b64encode(hashlib.md5(key).digest()).decode(),
    }
    with minio(tls=True) as server:
        there, back = S3Place(server, command), tmp_path / "back"
        for number in range(5):
            there.client.put(there.bucket, f"d/{number}", CONTENT, headers if number == 2 else {})
        done = command.run("cp", "-r", f"{there.url}/d", back, *there.flags("src")).expect(4)
        assert done.stderr.count(f"{there.url}/d/2: ") == 1 and "Tradewind cannot send such keys" in done.stderr
        assert tree_hashes(back).keys() == {"0", "1", "3", "4"}
        done = command.run("cp", f"{there.url}/d/2", back / "2", *there.flags("src"))
        assert done.code not in (0, 4) and "Tradewind cannot send such keys" in done.stderr
        assert not (back / "2").exists()
        sides = [*there.flags("src"), *there.flags("dst")]
        command.run("mv", "-r", f"{there.url}/d", f"{there.url}/moved", *sides).expect(4)
        assert set(there.sizes()) == {"d/2", *(f"moved/{number}" for number in (0, 1, 3, 4))}
        assert there.unfinished() == []
