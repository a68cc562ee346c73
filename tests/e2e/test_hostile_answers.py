"""Servers that attack their client by their answers: redirects, entities, endless bodies, false headers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command, Running, peak_rss_bytes
from testbed.odd_stores import Drip, Edit, Endless, Habits, Kind, OddPlace, OddStore, Reply, Rule, during
from testbed.places import FilePlace
from testbed.trees import MIB, payload

STORE_IDLE_S = 1
TRIES_MAX = 2
RSS_MAX_BYTES = 512 * MIB
SECRET = "a-secret-of-this-machine"


@pytest.fixture
def place(store: OddStore, command: Command) -> OddPlace:
    made = OddPlace(store, command)
    made.put("one", b"one")
    made.put("two", payload("two", MIB))
    return made


@pytest.fixture
def impatient(tmp_path: Path) -> list[str]:
    """Return options with a short request timeout."""
    limits = with_limits(chain(), store_idle_s=STORE_IDLE_S, store_tries_max=TRIES_MAX, store_retry_s=5)
    return ["--topology", str(write(limits, tmp_path / "topology.json"))]


def redirect(status: int, location: str) -> Callable[[Reply], Reply]:
    headers = {"location": location, "x-amz-bucket-region": "evil-1", "content-type": "text/html"}
    return lambda _: Reply(status, headers, b"<Error><Code>PermanentRedirect</Code><Region>evil-1</Region></Error>")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("operation", ["list", "get", "put"])
def test_a_redirect_never_reaches_another_host(
    place: OddPlace, command: Command, tmp_path: Path, status: int, operation: str
) -> None:
    with OddStore(place.store.kind) as other:
        other.objects.create_bucket(place.bucket)
        action = Edit(redirect(status, f"{other.endpoint}/{place.bucket}/one"))
        rule = place.store.add(Rule(action, when=during(operation)))
        files = FilePlace(tmp_path / "files")
        files.put("up", b"up")
        if operation == "put":
            done = command.run("cp", f"{files.url}/up", f"{place.url}/up", *place.flags("dst"))
        elif operation == "get":
            done = command.run("cp", f"{place.url}/one", f"{files.url}/one", *place.flags("src"))
        else:
            done = command.run("ls", place.url, *place.flags())
        assert done.code != 0 and rule.strikes > 0
        assert other.exchanges == []
        assert files.sizes() == {"up": 2}


def entity(place: OddPlace, secret: Path) -> bytes:
    return (
        f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><ListBucketResult><IsTruncated>false</IsTruncated>'
        "<Contents><Key>&e;</Key><Size>1</Size></Contents></ListBucketResult>"
    ).encode()


def bomb(place: OddPlace, secret: Path) -> bytes:
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    return (
        f'<!DOCTYPE x [<!ENTITY e0 "lol">{entities}]><ListBucketResult><IsTruncated>false</IsTruncated>'
        "<Contents><Key>&e12;</Key><Size>1</Size></Contents></ListBucketResult>"
    ).encode()


def deep(place: OddPlace, secret: Path) -> bytes:
    return b"<ListBucketResult>" + b"<a>" * 1_000_000


def huge_size(place: OddPlace, secret: Path) -> bytes:
    if place.store.kind == "azure":
        return (
            b"<EnumerationResults><Blobs><Blob><Name>a</Name><Properties>"
            b"<Content-Length>99999999999999999999999</Content-Length>"
            b"</Properties></Blob></Blobs><NextMarker/></EnumerationResults>"
        )
    return (
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key>"
        b"<Size>99999999999999999999999</Size></Contents></ListBucketResult>"
    )


def page(place: OddPlace, secret: Path) -> bytes:
    return b"<html><body>Sign in to the network</body></html>"


@pytest.mark.parametrize("attack", [entity, bomb, deep, huge_size, page])
def test_malicious_xml_is_refused(
    place: OddPlace, command: Command, tmp_path: Path, attack: Callable[[OddPlace, Path], bytes]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    body = attack(place, secret).replace(
        b"ListBucketResult", b"EnumerationResults" if place.store.kind == "azure" else b"ListBucketResult"
    )
    place.store.add(Rule(Edit(lambda reply: Reply(200, reply.headers, body)), when=during("list")))
    done = command.run("ls", place.url, *place.flags())
    no_number = attack is huge_size and place.store.kind != "azure"
    assert done.code == (1 if no_number else 5), (done.code, done.stderr)
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout == ""
    assert ("bad listing: the size" if no_number else "unreadable answer") in done.stderr


def watch(running: Running, command: Command) -> int:
    """Wait for the command's end; return the peak memory of its largest process."""
    peak = 0
    while running.process.poll() is None:
        peak = max([peak, *(peak_rss_bytes(pid) for pid in command.processes())])
        time.sleep(0.05)
    return peak


@pytest.mark.parametrize("operation", [pytest.param("list", marks=pytest.mark.slow), "get"])
def test_an_endless_body_is_cut_off(
    place: OddPlace, command: Command, tmp_path: Path, impatient: list[str], operation: str
) -> None:
    place.store.add(Rule(Endless(b"<a></a>" * 10_000), when=during(operation)))
    running = command.start("cp", "-r", place.url, str(tmp_path / "files"), *place.flags("src"), *impatient)
    peak = watch(running, command)
    done = running.finish()
    assert done.code != 0
    assert peak < RSS_MAX_BYTES
    assert FilePlace(tmp_path / "files").sizes() == {}


@pytest.mark.parametrize("operation", [pytest.param("list", marks=pytest.mark.slow), "get"])
def test_a_body_that_drips_is_read_to_its_end(
    place: OddPlace, command: Command, tmp_path: Path, impatient: list[str], operation: str
) -> None:
    """An object's bytes may be slow while they keep arriving. A listing may take as long as a request."""
    place.store.add(Rule(Drip(0.02), when=during(operation, "one" if operation == "get" else None)))
    command.run("cp", "-r", place.url, str(tmp_path / "files"), *place.flags("src"), *impatient).expect(0)
    assert FilePlace(tmp_path / "files").sizes() == place.sizes()


LIES = {
    "etag": {"etag": '"0123456789abcdef0123456789abcdef"'},
    "google": {"x-goog-hash": "md5=ASNFZ4mrze8BI0VniavN7w=="},
    "crc64": {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="},
    "azure": {"content-md5": "ASNFZ4mrze8BI0VniavN7w=="},
}


@pytest.mark.parametrize(
    ("kind", "lie"), [("s3", "etag"), ("s3", "crc64"), ("gcs", "google"), ("azure", "azure")], ids=str
)
def test_a_checksum_that_does_not_match_the_bytes_is_a_mismatch(
    command: Command, tmp_path: Path, kind: Kind, lie: str
) -> None:
    with OddStore(kind, Habits(ignores_if_match=True)) as store:
        place, files = OddPlace(store, command), FilePlace(tmp_path / "files")
        place.put("one", b"one")
        for operation in ("head", "get"):
            store.add(Rule(Edit(lambda reply: reply.headers.update(LIES[lie])), when=during(operation)))
        listed = Edit(lambda reply: setattr(reply, "body", reply.body.replace(b"&quot;", b"")))
        store.add(Rule(listed, when=during("list")))
        done = command.run("cp", f"{place.url}/one", f"{files.url}/one", *place.flags("src"))
        assert done.code == 6, (done.code, done.stderr)
        assert files.sizes() == {}
