"""The summary of a copy between two stores says when its bytes passed this machine, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Answer, Call, HttpProxy, Request, Rule
from testbed.odd_stores import Habits, Object, OddPlace, OddStore, during
from testbed.places import AzurePlace, GcsPlace, S3Place
from testbed.servers import Server
from testbed.trees import payload

CONTENT = payload("passage", 100_000)
PASSED = "passed  1 object through this machine: "


@pytest.fixture
def other(s3_server: Server, command: Command) -> S3Place:
    """Another bucket of the server of `s3`."""
    return S3Place(s3_server, command)


@pytest.fixture
def counting(s3_server: Server, s3: S3Place, other: S3Place) -> Iterator[HttpProxy]:
    """A proxy through which both buckets are used."""
    s3.put("k", CONTENT)
    with HttpProxy(s3_server.endpoint) as made:
        s3.endpoint = other.endpoint = made.endpoint
        yield made


def copy(command: Command, source: S3Place, flags: list[str], place: S3Place | AzurePlace) -> str:
    """Copy the object and return the summary."""
    done = command.run("cp", f"{source.url}/k", f"{place.url}/k", *source.flags("src"), *flags).expect(0)
    assert place.get("k") == CONTENT
    return done.stderr


def moves_bytes(request: Request) -> bool:
    return request.is_write or request.is_read


def test_a_copy_by_the_store_passes_nothing(command: Command, s3: S3Place, other: S3Place, counting: HttpProxy) -> None:
    said = copy(command, s3, other.flags("dst"), other)
    assert "via     the store, which copies by itself; this machine only where the store refuses" in said
    assert "proven  1 copied by the store itself" in said and "passed" not in said
    assert counting.requests(moves_bytes) == []


def test_a_tree_costs_one_request_for_each_object_and_one_listing(
    command: Command, s3: S3Place, other: S3Place, counting: HttpProxy
) -> None:
    names = [f"tree/{number:02}" for number in range(30)]
    for name in names:
        s3.put(name, CONTENT)
    places = [f"{s3.url}/tree/", f"{other.url}/to/"]
    done = command.run("cp", "-r", *places, *s3.flags("src"), *other.flags("dst")).expect(0)
    assert "proven  30 copied by the store itself (store-copy)" in done.stderr
    methods = Counter(exchange.request.method for exchange in counting.requests(lambda _: True))
    assert methods["PUT"] == 30
    # A few objects are compared, to prove that the two buckets are not one.
    assert methods["HEAD"] < 10
    listings = counting.requests(lambda asked: "list-type" in asked.query and asked.query.get("max-keys") == "1000")
    assert len(listings) == 1
    assert all(other.get(name.replace("tree", "to")) == CONTENT for name in names)


def test_different_endpoints_are_named(
    command: Command, s3: S3Place, other: S3Place, counting: HttpProxy, s3_server: Server
) -> None:
    other.endpoint = s3_server.endpoint
    said = copy(command, s3, other.flags("dst"), other)
    assert f"{PASSED}the two sides have different endpoints" in said
    assert "via     this machine, no gateways in between" in said
    assert sum(exchange.response_bytes for exchange in counting.requests(moves_bytes)) == len(CONTENT)


def test_different_credentials_are_named(
    command: Command, s3: S3Place, other: S3Place, counting: HttpProxy, s3_server: Server
) -> None:
    credentials = command.home / "aws-credentials"
    keys = f"aws_access_key_id = {s3_server.access_key}\naws_secret_access_key = {s3_server.secret_key}\n"
    credentials.write_text(f"{credentials.read_text()}[second]\n{keys}")
    flags = ["--dst-endpoint", other.endpoint, "--dst-profile", "second", "--dst-region", "us-east-1"]
    assert f"{PASSED}the two sides have different credentials" in copy(command, s3, flags, other)
    (job,) = command.jobs()
    assert f"{PASSED}the two sides have different credentials" in command.run("jobs", "show", str(job["id"])).stdout


def test_different_kinds_of_stores_are_named(
    command: Command, s3: S3Place, counting: HttpProxy, azure_server: Server
) -> None:
    azure = AzurePlace(azure_server, command)
    assert f"{PASSED}the two stores are of different kinds" in copy(command, s3, azure.flags("dst"), azure)


def test_a_refused_copy_by_the_store_is_reported(
    command: Command, s3: S3Place, other: S3Place, counting: HttpProxy
) -> None:
    refusal = Rule(Answer(501, "NotImplemented"), when=lambda request: "x-amz-copy-source" in request.headers)
    counting.add(refusal)
    assert f"{PASSED}the store did not copy by itself" in copy(command, s3, other.flags("dst"), other)


TOO_LONG = Answer(
    413, "EntityTooLarge", "Copy spanning locations and/or storage classes could not complete within 30 seconds."
)


@pytest.mark.slow
def test_the_empty_object_of_a_directory_is_copied_where_the_store_cannot_copy_it(
    command: Command, seaweedfs_server: Server, tmp_path: Path
) -> None:
    """SeaweedFS answers that the source does not exist."""
    (tmp_path / "tree" / "empty").mkdir(parents=True)
    (tmp_path / "tree" / "k").write_bytes(b"x")
    source, there = S3Place(seaweedfs_server, command), S3Place(seaweedfs_server, command)
    command.run("cp", "-r", tmp_path / "tree", source.url, *source.flags("dst")).expect(0)
    done = command.run("cp", "-r", source.url, there.url, *source.flags("src"), *there.flags("dst")).expect(0)
    assert there.sizes() == {"empty/": 0, "k": 1}
    assert PASSED in done.stderr


def test_a_copy_whose_source_does_not_exist_names_the_source(
    command: Command, s3: S3Place, other: S3Place, counting: HttpProxy
) -> None:
    counting.add(
        Rule(Answer(404, "NoSuchKey"), when=lambda request: "x-amz-copy-source" in request.headers or request.is_read)
    )
    words = [s3.url, other.url, *s3.flags("src"), *other.flags("dst")]
    done = command.run("cp", "-r", *words).expect(3)
    assert f"error: get {s3.url}/k: injected (NoSuchKey)" in done.stderr
    assert other.sizes() == {}


def test_a_copy_for_which_google_needs_too_long_passes_this_machine(command: Command, gcs_server: Server) -> None:
    """The server has no JSON API."""
    source, place = GcsPlace(gcs_server, command), GcsPlace(gcs_server, command)
    source.put("k", CONTENT)
    with HttpProxy(gcs_server.endpoint) as proxy:
        proxy.add(Rule(TOO_LONG, when=lambda r: "x-goog-copy-source" in r.headers))
        source.endpoint = place.endpoint = proxy.endpoint
        done = command.run("cp", f"{source.url}/k", f"{place.url}/k", *source.flags("src"), *place.flags("dst")).expect(
            0
        )
    assert place.get("k") == CONTENT
    assert f"{PASSED}the store did not copy by itself" in done.stderr


@dataclass(frozen=True)
class Rewriting:
    """Two buckets of a store like Google's that refuses copies in one request."""

    store: OddStore
    source: OddPlace
    target: OddPlace

    def arguments(self, *options: str) -> list[str]:
        """Return those of a copy of the object."""
        return [
            f"{self.source.url}/a b/é",
            f"{self.target.url}/k",
            *self.source.flags(),
            *self.target.flags("dst"),
            *options,
        ]

    def copied(self) -> Object:
        """Return the copy."""
        return self.store.objects.find(self.target.bucket, "k")


@pytest.fixture
def rewriting(command: Command) -> Iterator[Rewriting]:
    with OddStore("gcs", Habits(rewrite_requests=3)) as store:
        store.add(Rule(TOO_LONG, when=during("copy")))
        made = Rewriting(store, OddPlace(store, command), OddPlace(store, command))
        made.source.put("a b/é", CONTENT)
        kept = {"content-type": "text/x-test", "x-goog-meta-colour": "blue"}
        store.objects.find(made.source.bucket, "a b/é").headers.update(kept)
        yield made


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ((), {"content-type": "text/x-test", "x-goog-meta-colour": "blue"}),
        (("--storage-class", "NEARLINE"), {"content-type": "text/x-test", "x-goog-storage-class": "NEARLINE"}),
        (("--content-type", "text/other"), {"content-type": "text/other", "x-goog-meta-colour": "blue"}),
    ],
    ids=["as-it-is", "storage-class", "content-type"],
)
def test_google_copies_in_several_requests_what_takes_too_long(
    command: Command, rewriting: Rewriting, options: tuple[str, ...], headers: dict[str, str]
) -> None:
    done = command.run("cp", *rewriting.arguments(*options)).expect(0)
    copied = rewriting.copied()
    assert (copied.body, copied.headers.items() >= headers.items()) == (CONTENT, True), copied.headers
    assert "through this machine" not in done.stderr
    assert rewriting.store.requests(during("get")) == rewriting.store.requests(during("put")) == []
    tokens = [each.request.query.get("rewriteToken") for each in rewriting.store.requests(during("rewrite"))]
    assert tokens == [None, "1", "2"]


def test_a_source_that_changes_during_a_copy_in_several_requests_is_copied_again(
    command: Command, rewriting: Rewriting
) -> None:
    change = Call(lambda: rewriting.source.put("a b/é", b"new"))
    rewriting.store.add(Rule(change, when=during("rewrite"), skip=1, count=1))
    done = command.run("cp", *rewriting.arguments())
    assert done.code != 0 or rewriting.copied().body == b"new", done.stderr


def test_a_copy_in_several_requests_that_copies_nothing_ends(command: Command, rewriting: Rewriting) -> None:
    rewriting.store.habits.rewrite_requests = -1
    done = command.run("cp", *rewriting.arguments(), timeout_s=120)
    assert done.code != 0 and "the latest requests, 20 in a row, copied nothing" in done.stderr


def test_a_file_passes_this_machine_anyway(command: Command, s3: S3Place) -> None:
    source = command.home / "k"
    source.write_bytes(CONTENT)
    assert "passed" not in command.run("cp", source, f"{s3.url}/k", *s3.flags("dst")).expect(0).stderr
