"""A misbehaving store: the required reaction to each fault, with a real server behind a proxy that injects it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command, Finished
from testbed.faults import (
    Answer,
    Call,
    Cut,
    FlipRequest,
    FlipResponse,
    Hang,
    HttpProxy,
    Request,
    Rule,
    Truncate,
)
from testbed.places import FilePlace, S3Place
from testbed.trees import MIB, payload, tree_hashes, write_tree

SMALL = {f"small/{number:02}": 10_000 + number for number in range(40)}
SIZES = {**SMALL, "one-chunk": 9 * MIB, "many-chunks": 70 * MIB + 3}
STORE_IDLE_S = 2
"""Request timeout in tests with a store that hangs."""


@pytest.fixture
def files(tmp_path: Path) -> FilePlace:
    place = FilePlace(tmp_path / "tree")
    write_tree(place.folder, SIZES)
    return place


@pytest.fixture
def back(tmp_path: Path) -> FilePlace:
    return FilePlace(tmp_path / "back")


@pytest.fixture
def bucket(s3: S3Place, proxy: HttpProxy) -> S3Place:
    """A bucket that the command reaches through the proxy, and the test directly."""
    s3.endpoint = proxy.endpoint
    return s3


@pytest.fixture
def filled(bucket: S3Place, files: FilePlace, command: Command, proxy: HttpProxy) -> S3Place:
    """The bucket with the tree, written by Tradewind itself, with checksums."""
    command.run("cp", "-r", files.url, bucket.url, *bucket.flags("dst")).expect(0)
    proxy.clear()
    return bucket


def upload(command: Command, files: FilePlace, bucket: S3Place, *more: str) -> Finished:
    return command.run("cp", "-r", "--json", files.url, bucket.url, *bucket.flags("dst"), *more)


def download(command: Command, bucket: S3Place, back: FilePlace, *more: str) -> Finished:
    return command.run("cp", "-r", "--json", bucket.url, back.url, *bucket.flags("src"), *more)


def assert_all_in(bucket: S3Place, sizes: dict[str, int]) -> None:
    assert bucket.sizes() == sizes
    for key, size in sizes.items():
        assert bucket.get(key) == payload(key, size), key
    assert bucket.unfinished() == []


def failed_keys(done: Finished) -> set[str]:
    return {failure["source"].rpartition("/")[2] for failure in done.failures}


def is_write(request: Request) -> bool:
    return request.is_write


def is_read(request: Request) -> bool:
    return request.is_read


def reads(name: str) -> Callable[[Request], bool]:
    return lambda request: request.is_read and request.path.endswith(f"/{name}")


@pytest.mark.parametrize("direction", ["up", pytest.param("down", marks=pytest.mark.slow)])
def test_slow_down_for_20_s_is_waited_out(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy, direction: str
) -> None:
    touched = is_write if direction == "up" else is_read
    rule = proxy.add(Rule(Answer(503, "SlowDown"), when=touched, skip=5, seconds=20))
    done = upload(command, files, filled) if direction == "up" else download(command, filled, back)
    done.expect(0)
    assert rule.expired.is_set(), "the store recovered before the job ended"
    assert rule.strikes < 1_500, "an overloaded store is not flooded with requests"
    if direction == "up":
        assert_all_in(filled, SIZES)
    else:
        assert tree_hashes(back.folder) == tree_hashes(files.folder)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_occasional_500s_are_retried(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy, direction: str
) -> None:
    rule = proxy.add(Rule(Answer(500, "InternalError"), share=0.2, seed=7))
    done = upload(command, files, filled) if direction == "up" else download(command, filled, back)
    done.expect(0)
    assert rule.strikes > 0
    if direction == "up":
        assert_all_in(filled, SIZES)
    else:
        assert tree_hashes(back.folder) == tree_hashes(files.folder)


@pytest.mark.parametrize("action", [Truncate(MIB), Truncate(0), Cut()], ids=["in-the-middle", "no-byte", "reset"])
def test_a_truncated_body_is_read_again(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy, action: Truncate | Cut
) -> None:
    rule = proxy.add(Rule(action, when=reads("many-chunks"), count=3))
    download(command, filled, back).expect(0)
    assert rule.expired.is_set()
    assert tree_hashes(back.folder) == tree_hashes(files.folder)


def test_a_connection_reset_during_an_upload_is_retried(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy
) -> None:
    rule = proxy.add(Rule(Cut(), when=is_write, skip=3, count=4))
    upload(command, files, bucket).expect(0)
    assert rule.expired.is_set()
    assert_all_in(bucket, SIZES)


@pytest.mark.parametrize("action", [Hang(), Hang(MIB)], ids=["no-answer", "in-the-body"])
def test_a_hanging_read_is_retried(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy, tmp_path: Path, action: Hang
) -> None:
    topology = write(with_limits(chain(), store_idle_s=STORE_IDLE_S), tmp_path / "topology.json")
    rule = proxy.add(Rule(action, when=reads("many-chunks"), count=2))
    download(command, filled, back, "--topology", str(topology)).expect(0)
    assert rule.expired.is_set()
    assert tree_hashes(back.folder) == tree_hashes(files.folder)


def test_a_hanging_write_is_retried(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    topology = write(with_limits(chain(), store_idle_s=STORE_IDLE_S), tmp_path / "topology.json")
    rule = proxy.add(Rule(Hang(), when=is_write, skip=2, count=2))
    upload(command, files, bucket, "--topology", str(topology)).expect(0)
    assert rule.expired.is_set()
    assert_all_in(bucket, SIZES)


@pytest.mark.parametrize("name", ["one-chunk", "many-chunks", "small/07"])
def test_a_byte_flipped_in_the_stores_answer_never_reaches_the_file(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy, name: str
) -> None:
    rule = proxy.add(Rule(FlipResponse(at_byte=4_321), when=reads(name), count=1))
    download(command, filled, back).expect(0)
    assert rule.expired.is_set()
    assert tree_hashes(back.folder) == tree_hashes(files.folder)


def test_bytes_that_remain_wrong_are_reported_and_never_visible(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy
) -> None:
    proxy.add(Rule(FlipResponse(at_byte=4_321), when=reads("one-chunk")))
    done = download(command, filled, back)
    assert done.code in (4, 6), done.stderr
    assert failed_keys(done) == {"one-chunk"}
    assert done.failures[0]["kind"] == "mismatch"
    expected = tree_hashes(files.folder)
    del expected["one-chunk"]
    assert tree_hashes(back.folder) == expected


@pytest.mark.parametrize("which", ["part", "whole"])
def test_a_byte_flipped_on_its_way_to_the_store_is_refused_and_sent_again(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, which: str
) -> None:
    def hit(request: Request) -> bool:
        return request.is_write and request.is_part == (which == "part")

    rule = proxy.add(Rule(FlipRequest(at_byte=1_000), when=hit, count=1))
    upload(command, files, bucket).expect(0)
    assert rule.expired.is_set()
    assert_all_in(bucket, SIZES)


def test_a_source_object_overwritten_during_its_copy_is_copied_again(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy
) -> None:
    newer = payload("newer", 50 * MIB)
    proxy.add(Rule(Call(lambda: filled.put("many-chunks", newer)), when=reads("many-chunks"), skip=2, count=1))
    download(command, filled, back).expect(0)
    expected = tree_hashes(files.folder)
    del expected["many-chunks"]
    assert back.get("many-chunks") == newer
    back.folder.joinpath("many-chunks").unlink()
    assert tree_hashes(back.folder) == expected


def test_a_source_object_that_keeps_changing_is_reported(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy
) -> None:
    versions = iter(range(10_000))

    def overwrite() -> None:
        filled.put("many-chunks", payload(f"version-{next(versions)}", 50 * MIB))

    proxy.add(Rule(Call(overwrite), when=reads("many-chunks"), skip=1))
    done = download(command, filled, back).expect(4)
    assert done.failure_kinds == ["changed"]
    expected = tree_hashes(files.folder)
    del expected["many-chunks"]
    assert tree_hashes(back.folder) == expected


def test_a_source_object_deleted_during_its_copy_is_reported(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy
) -> None:
    delete = Call(lambda: filled.client.delete(filled.bucket, "many-chunks"))
    proxy.add(Rule(delete, when=reads("many-chunks"), skip=2, count=1))
    done = download(command, filled, back).expect(4)
    assert done.failure_kinds == ["not_found"]
    expected = tree_hashes(files.folder)
    del expected["many-chunks"]
    assert tree_hashes(back.folder) == expected


def test_a_source_object_forbidden_during_its_copy_is_reported(
    command: Command, files: FilePlace, filled: S3Place, back: FilePlace, proxy: HttpProxy
) -> None:
    rule = proxy.add(Rule(Answer(403, "AccessDenied"), when=reads("many-chunks"), skip=2))
    done = download(command, filled, back).expect(4)
    assert done.failure_kinds == ["forbidden"]
    assert rule.strikes <= 8, "forbidden requests are not retried many times"
    expected = tree_hashes(files.folder)
    del expected["many-chunks"]
    assert tree_hashes(back.folder) == expected


def test_a_destination_that_forbids_everything_ends_the_job_as_not_authorised(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy
) -> None:
    proxy.add(Rule(Answer(403, "AccessDenied"), when=lambda request: request.method in ("PUT", "POST")))
    done = upload(command, files, bucket).expect(7)
    assert "AccessDenied" in done.stderr + str(done.failures)
    assert bucket.sizes() == {}
    assert bucket.unfinished() == []


def test_one_forbidden_destination_key_fails_only_that_object(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy
) -> None:
    proxy.add(
        Rule(Answer(403, "AccessDenied"), when=lambda request: request.is_write and request.path.endswith("/small/05"))
    )
    done = upload(command, files, bucket).expect(4)
    assert [(failure["kind"], failure["source"].endswith("small/05")) for failure in done.failures] == [
        ("forbidden", True)
    ]
    assert_all_in(bucket, {key: size for key, size in SIZES.items() if key != "small/05"})


def test_a_forbidden_completion_leaves_no_upload_behind(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy
) -> None:
    proxy.add(
        Rule(Answer(403, "AccessDenied"), when=lambda request: request.method == "POST" and "uploadId" in request.query)
    )
    done = upload(command, files, bucket).expect(4)
    assert failed_keys(done) == {"many-chunks"}
    assert_all_in(bucket, {key: size for key, size in SIZES.items() if key != "many-chunks"})


def test_a_completion_whose_answer_is_lost_is_not_a_failure(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    topology = write(with_limits(chain(), store_work_s=STORE_IDLE_S), tmp_path / "topology.json")

    def completes(request: Request) -> bool:
        return request.method == "POST" and "uploadId" in request.query

    rule = proxy.add(Rule(Hang(), when=completes, count=1))
    upload(command, files, bucket, "--topology", str(topology)).expect(0)
    assert rule.expired.is_set()
    assert_all_in(bucket, SIZES)


def test_a_missing_destination_bucket_is_reported_once(command: Command, files: FilePlace, bucket: S3Place) -> None:
    bucket.url = "s3://no-such-bucket-here"
    done = upload(command, files, bucket).expect(1)
    assert "no-such-bucket-here" in done.stderr + str(done.summary)
    assert done.summary["hint"]


def test_a_missing_source_bucket_is_source_not_found(command: Command, bucket: S3Place, back: FilePlace) -> None:
    bucket.url = "s3://no-such-bucket-here"
    download(command, bucket, back).expect(3)
    assert back.sizes() == {}


def test_an_empty_prefix_is_source_not_found_unless_allowed(command: Command, bucket: S3Place, back: FilePlace) -> None:
    bucket.put("full/of", b"something")
    bucket.url += "/empty"
    download(command, bucket, back).expect(3)
    download(command, bucket, back, "--allow-empty").expect(0)


def test_a_missing_object_is_source_not_found(command: Command, bucket: S3Place, back: FilePlace) -> None:
    command.run("cp", f"{bucket.url}/nothing", f"{back.url}/there", *bucket.flags("src")).expect(3)
    assert back.sizes() == {}


def test_wrong_credentials_are_not_authorised_and_not_shown(
    command: Command, files: FilePlace, bucket: S3Place
) -> None:
    secret = "wrong-secret-that-must-not-be-shown"
    path = Path(command.environment["AWS_SHARED_CREDENTIALS_FILE"])
    path.write_text(f"[versitygw]\naws_access_key_id = testbed\naws_secret_access_key = {secret}\n")
    done = upload(command, files, bucket).expect(7)
    assert bucket.sizes() == {}
    kept = [file for file in command.state.rglob("*") if file.is_file()]
    assert not any(secret.encode() in file.read_bytes() for file in kept)
    assert secret not in done.stdout + done.stderr


def test_a_full_disk_fails_only_objects_that_do_not_fit(command: Command, tmp_path: Path, small_disk: Path) -> None:
    source = FilePlace(tmp_path / "tree")
    sizes = {f"a-small/{number}": 1_000 for number in range(10)} | {"b-too-large": 60 * MIB}
    write_tree(source.folder, sizes)
    done = command.run("cp", "-r", "--json", source.url, str(small_disk)).expect(4)
    failed = {failure["source"].rpartition("tree/")[2]: failure["kind"] for failure in done.failures}
    assert failed["b-too-large"] == "no_space"
    assert set(failed.values()) == {"no_space"}
    expected = {name: digest for name, digest in tree_hashes(source.folder).items() if name not in failed}
    assert tree_hashes(small_disk) == expected
