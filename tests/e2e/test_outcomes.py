"""Ends of transfers: one line per cause, the cause's exit code, counts that add up, nothing silently skipped."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.chains import chain, write
from testbed.drive import Command, Event, Finished
from testbed.faults import Answer, HttpProxy, Request, Rule
from testbed.places import FilePlace, Place, S3Place
from testbed.trees import MIB, tree_hashes, write_large, write_tree
from tradewind.engine.supervisor import RESTARTS_MAX

COUNT = 600
"""Number of objects: more than one bundle, and more than the consecutive failures after which a store is given up."""
TRIES = 10
"""Number of attempts of a request."""
MakePlace = Callable[[str], Place]


@pytest.fixture
def files(tmp_path: Path) -> FilePlace:
    place = FilePlace(tmp_path / "tree")
    write_tree(place.folder, {f"d{number % 7}/{number:04}": 100 for number in range(COUNT)})
    return place


@pytest.fixture
def bucket(s3: S3Place, proxy: HttpProxy) -> S3Place:
    """A bucket that the command reaches through the proxy, and the test directly."""
    s3.endpoint = proxy.endpoint
    return s3


def errors(done: Finished) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error:")]


def give_keys(command: Command, access: str, secret: str) -> None:
    path = Path(command.environment["AWS_SHARED_CREDENTIALS_FILE"])
    path.write_text(f"[versitygw]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")


@pytest.mark.parametrize("wrong", ["access key", "secret"])
@pytest.mark.parametrize("direction", ["up", "down", "down-one"])
def test_wrong_keys_are_reported_and_requested_once(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, tmp_path: Path, wrong: str, direction: str
) -> None:
    bucket.put("one", b"1")
    known = Path(command.environment["AWS_SHARED_CREDENTIALS_FILE"]).read_text()
    access = "nobody" if wrong == "access key" else "testbed"
    give_keys(command, access, "wrong" if wrong == "secret" else known.rsplit("= ", 1)[1].strip())
    back = str(tmp_path / "back")
    words = {
        "up": ["-r", files.url, bucket.url, *bucket.flags("dst")],
        "down": ["-r", bucket.url, back, *bucket.flags("src")],
        "down-one": [f"{bucket.url}/one", back, *bucket.flags("src")],
    }[direction]
    proxy.clear()
    done = command.run("cp", *words).expect(7)
    assert len(errors(done)) == 1, done.stderr
    assert len(proxy.exchanges) <= 4


def test_a_missing_destination_bucket_is_reported_and_requested_once(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy
) -> None:
    done = command.run("cp", "-r", files.url, "s3://no-such-bucket-here", *bucket.flags("dst")).expect(1)
    (line,) = errors(done)
    assert "no-such-bucket-here" in line
    assert len(proxy.exchanges) <= 2


@pytest.mark.parametrize("mib", [0, 12], ids=["whole", "in parts"])
def test_a_missing_bucket_for_standard_input_is_not_called_a_missing_source(
    command: Command, bucket: S3Place, mib: int
) -> None:
    words = ["--chunk-size", "5MiB", *bucket.flags("dst")]
    done = command.run("cp", "-", "s3://no-such-bucket-here/x", *words, stdin=b"x" * max(1, mib * MIB)).expect(1)
    assert "no-such-bucket-here" in errors(done)[0]
    assert "check the bucket's name" in done.stderr


def test_an_impossible_path_for_standard_input_is_not_called_a_missing_source(command: Command) -> None:
    done = command.run("cp", "-", "/proc/x", stdin=b"x").expect(1)
    assert "hint: check the path of the destination" in done.stderr


def opens(request: Request) -> bool:
    return request.method == "POST" and "uploads" in request.query


def looks_for_uploads(request: Request) -> bool:
    return request.method == "GET" and "uploads" in request.query


def test_a_refused_upload_leaves_nothing_behind(
    command: Command, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    write_large(tmp_path / "large", 12 * MIB)
    words: list[str | Path] = [tmp_path / "large", f"{bucket.url}/large", "--chunk-size", "5MiB", *bucket.flags("dst")]
    proxy.add(Rule(Answer(403, "SignatureDoesNotMatch"), when=opens))
    forbidden = proxy.add(Rule(Answer(403, "AccessDenied"), when=looks_for_uploads))
    done = command.run("cp", *words).expect(7)
    assert (forbidden.strikes, "left behind" in done.stderr) == (0, False), done.stderr


def test_after_a_failed_request_to_open_an_upload_the_upload_is_looked_up(
    command: Command, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    write_large(tmp_path / "large", 12 * MIB)
    words: list[str | Path] = [tmp_path / "large", f"{bucket.url}/large", "--chunk-size", "5MiB", *bucket.flags("dst")]
    proxy.add(Rule(Answer(500, "InternalError"), when=opens, count=1))
    proxy.add(Rule(Answer(403, "AccessDenied"), when=opens))
    proxy.add(Rule(Answer(403, "AccessDenied"), when=looks_for_uploads))
    assert "an unfinished upload may be left behind" in command.run("cp", *words).expect(7).stderr


def test_a_name_that_the_destination_cannot_store_leaves_no_upload_behind(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "large", 12 * MIB)
    words: list[str | Path] = [tmp_path / "large", tmp_path / ("n" * 300), "--chunk-size", "5MiB"]
    done = command.run("cp", *words).expect(1)
    assert "left behind" not in done.stderr


def test_a_missing_source_bucket_is_reported_once(command: Command, bucket: S3Place, tmp_path: Path) -> None:
    for words in (["-r", "s3://no-such-bucket-here"], ["s3://no-such-bucket-here/one"]):
        done = command.run("cp", *words, str(tmp_path / "back"), *bucket.flags("src")).expect(3)
        assert len(errors(done)) == 1, done.stderr


def test_a_destination_that_forbids_everything_fails_early(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    write_tree(files.folder, {f"more/{number:05}": 100 for number in range(20_000)})
    rule = proxy.add(Rule(Answer(403, "AccessDenied"), when=lambda request: request.method in ("PUT", "POST")))
    report = tmp_path / "report"
    done = command.run("cp", "-r", files.url, bucket.url, *bucket.flags("dst"), "--report", report).expect(7)
    (line,) = errors(done)
    assert f"not authorised to write {bucket.url}" in line and "the rest was not tried" in line
    assert rule.strikes < 15_000, "it does not try all of them"
    verdicts = [json.loads(each) for each in report.read_text().splitlines()]
    assert {verdict["kind"] for verdict in verdicts} == {"forbidden"}
    assert line.split()[1] == f"{len(verdicts):,}"


@pytest.mark.parametrize("verb", [["cp", "-r"], ["sync"]], ids=["cp", "sync"])
def test_one_missing_bucket_of_two_fails_only_that_destination(
    command: Command, files: FilePlace, bucket: S3Place, proxy: HttpProxy, verb: list[str]
) -> None:
    words = [*verb, files.url, "--to", "s3://no-such-bucket-here", "--to", bucket.url, *bucket.flags("dst")]
    done = command.run(*words).expect(4)
    (line,) = errors(done)
    assert line.startswith(f"error: {COUNT} objects: s3://no-such-bucket-here does not exist")
    assert set(bucket.sizes()) == set(files.sizes())
    assert len(proxy.requests(lambda request: "no-such-bucket-here" in request.path)) == 1
    again = command.run(*words, "--json").expect(4)
    progress = again.summary["progress"]
    moved = [progress[name] for name in ("objects_done", "objects_skipped", "objects_failed", "objects_total")]
    assert moved == ([0, COUNT, COUNT, COUNT] if verb == ["sync"] else [COUNT, 0, COUNT, 2 * COUNT])


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(403, "AccessDenied", 7), (404, "NoSuchKey", 3), (500, "InternalError", 5), (405, "MethodNotAllowed", 1)],
)
def test_the_exit_code_of_one_object_is_that_of_its_failure(
    command: Command, bucket: S3Place, proxy: HttpProxy, tmp_path: Path, status: int, code: str, expected: int
) -> None:
    bucket.put("one", b"1")
    proxy.add(
        Rule(Answer(status, code), when=lambda request: request.method == "GET" and request.path.endswith("/one"))
    )
    topology = write(with_few_tries(), tmp_path / "topology.json") if expected == 5 else None
    more: list[str | Path] = [] if topology is None else ["--topology", topology]
    done = command.run("cp", f"{bucket.url}/one", tmp_path / "back", *bucket.flags("src"), *more).expect(expected)
    assert len(errors(done)) == 1, done.stderr
    assert not (tmp_path / "back").exists()


def says(words: str) -> Callable[[Event], bool]:
    return lambda event: words in event.get("message", "")


def with_few_tries() -> dict[str, object]:
    document = chain()
    for gateway in document["gateways"].values():
        gateway["limits"] = {"store_tries_max": 1}
    return document


@pytest.mark.parametrize("good", [0, 5])
def test_counts_add_up_if_names_are_refused(command: Command, bucket: S3Place, tmp_path: Path, good: int) -> None:
    source = FilePlace(tmp_path / "odd")
    write_tree(source.folder, {f"good-{number}": 10 for number in range(good)})
    for number in range(6):
        Path(os.fsdecode(os.fsencode(source.folder) + b"/bad-\xff" + str(number).encode())).write_bytes(b"x")
    words = ["cp", "-r", source.url, bucket.url, *bucket.flags("dst")]
    done = command.run(*words, "--json").expect(4 if good else 1)
    progress = done.summary["progress"]
    assert [progress[name] for name in ("objects_done", "objects_failed", "objects_total")] == [good, 6, good + 6]
    said = errors(command.run(*words))
    assert said[-1] == f"error: 6 of {good + 6} objects failed"
    assert len(said) == 5, "three are named, the others counted"
    moved = "0 objects" if good == 0 else f"{good} objects"
    tried = command.run(*words, "--dry-run")
    assert f"would move {moved}, 6 cannot be moved; nothing was done" in tried.stderr


def test_a_resumed_job_counts_only_its_own_bytes_in_its_rate(command: Command, s3: S3Place, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "large")
    write_large(source.folder / "large", 64 * MIB)
    running = command.start("cp", "-r", source.url, s3.url, *s3.flags("dst"), "--limit-rate", "25MB/s")
    running.wait_for_bytes(32 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    words = ["cp", "-r", source.url, s3.url, *s3.flags("dst"), "--dry-run"]
    assert "unfinished" not in command.run(*words).expect(0).stderr, "a dry run starts nothing"
    done = command.run("jobs", "resume", str(job["id"]), "--json").expect(0)
    progress = done.summary["progress"]
    assert progress["bytes_done"] == 64 * MIB
    assert progress["bytes_earlier"] >= 32 * MIB
    assert progress["bytes_per_s"] * progress["elapsed_s"] <= 1.05 * (64 * MIB - progress["bytes_earlier"])


def test_a_repeated_command_mentions_the_unfinished_job(command: Command, s3: S3Place, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "large")
    write_large(source.folder / "large", 64 * MIB)
    words = ["cp", "-r", source.url, s3.url, *s3.flags("dst")]
    running = command.start(*words, "--limit-rate", "25MB/s")
    running.wait_for_bytes(16 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    again = command.run(*words).expect(0)
    (note,) = [line for line in again.stderr.splitlines() if line.startswith("note:")]
    assert f"tradewind jobs resume {job['id']}" in note
    assert "unfinished" not in command.run(*words).expect(0).stderr, "the second job has completed it"


@pytest.mark.parametrize("topology", [False, True], ids=["local", "chain"])
def test_a_killed_lead_is_restarted(command: Command, s3: S3Place, tmp_path: Path, topology: bool) -> None:
    source = FilePlace(tmp_path / "large")
    write_large(source.folder / "large", 96 * MIB)
    more: list[str | Path] = ["--topology", write(chain("relay"), tmp_path / "topology.json")] if topology else []
    running = command.start("cp", "-r", source.url, s3.url, *s3.flags("dst"), "--limit-rate", "25MB/s", *more)
    running.wait_for_bytes(24 * MIB)
    before = running.gateways()
    os.kill(next(iter(before.values())) if len(before) == 1 else before["lead"], signal.SIGKILL)
    done = running.finish().expect(0)
    assert [event["message"] for event in done.events if event["event"] == "notice" and "restarted" in event["message"]]
    assert done.summary["progress"]["bytes_earlier"] > 0, "acknowledged bytes are not sent again"
    assert s3.client.sha256(s3.bucket, "large") == tree_hashes(source.folder)["large"]
    assert s3.unfinished() == []


@pytest.mark.slow
def test_a_lead_that_keeps_dying_ends_the_job_with_a_hint_to_resume(
    command: Command, s3: S3Place, tmp_path: Path
) -> None:
    source = FilePlace(tmp_path / "large")
    write_large(source.folder / "large", 96 * MIB)
    running = command.start("cp", "-r", source.url, s3.url, *s3.flags("dst"), "--limit-rate", "10MB/s")
    running.wait_for_bytes(1)
    for restart in range(1, RESTARTS_MAX + 1):
        (gateway,) = running.gateways().values()
        os.kill(gateway, signal.SIGKILL)
        running.wait_for(says(f"({restart} of {RESTARTS_MAX})"))
    (gateway,) = running.gateways().values()
    os.kill(gateway, signal.SIGKILL)
    done = running.finish().expect(5)
    (job,) = command.jobs()
    assert f"tradewind jobs resume {job['id']}" in done.stderr
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert s3.client.sha256(s3.bucket, "large") == tree_hashes(source.folder)["large"]


def test_mv_removes_the_directories_it_empties_and_no_others(
    command: Command, place: MakePlace, tmp_path: Path
) -> None:
    source, bucket = FilePlace(tmp_path / "from"), place("versitygw")
    write_tree(source.folder, {"a/b/c/x": 5, "a/y": 5, "kept/z.tmp": 5, "kept/w": 5})
    (source.folder / "left-out" / "empty").mkdir(parents=True)
    words = ["mv", "-r", source.url, bucket.url, *bucket.flags("dst")]
    command.run(*words, "--exclude", "**/*.tmp", "--exclude", "left-out/**").expect(0)
    assert set(bucket.sizes()) == {"a/b/c/x", "a/y", "kept/w"}
    left = {str(path.relative_to(source.folder)) for path in source.folder.rglob("*")}
    assert left == {"kept", "kept/z.tmp", "left-out", "left-out/empty"}
    assert source.folder.is_dir(), "the source itself stays"


def test_mv_deletes_only_what_every_destination_has(command: Command, s3: S3Place, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "from")
    write_tree(source.folder, {"a": 5, "b/c": 5})
    for name in ("a", "b/c"):
        # Copies from the same second as the source could be the source itself under another name.
        os.utime(source.folder / name, (1_000_000_000, 1_000_000_000))
    done = command.run("mv", "-r", source.url, "--to", s3.url, "--to", "s3://no-such-bucket-here", *s3.flags("dst"))
    done.expect(4)
    assert set(source.sizes()) == {"a", "b/c"}, "one destination has nothing"
    command.run("mv", "-r", source.url, "--to", s3.url, "--to", tmp_path / "other", *s3.flags("dst")).expect(0)
    assert source.sizes() == {}
    assert set(FilePlace(tmp_path / "other").sizes()) == {"a", "b/c"}


def test_a_resumed_mv_deletes_what_its_first_run_copied(command: Command, s3: S3Place, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "from")
    write_tree(source.folder, {f"small/{number}": 1000 for number in range(20)})
    write_large(source.folder / "z-large", 64 * MIB)
    running = command.start("mv", "-r", source.url, s3.url, *s3.flags("dst"), "--limit-rate", "20MB/s")
    running.wait_for(lambda event: event["event"] == "progress" and event["objects_done"] >= 1)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    assert len(source.sizes()) == 21
    (job,) = command.jobs()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert source.sizes() == {}


def test_sync_between_folders_carries_a_change_to_an_older_time(command: Command, tmp_path: Path) -> None:
    source, copy = FilePlace(tmp_path / "from"), FilePlace(tmp_path / "to")
    write_tree(source.folder, {"a": 100, "b": 100})
    command.run("sync", source.url, copy.url).expect(0)
    path = source.folder / "a"
    assert abs(path.stat().st_mtime - (copy.folder / "a").stat().st_mtime) < 0.002, "times are kept"
    path.write_bytes(b"x" * 100)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    done = command.run("sync", source.url, copy.url, "--json").expect(0)
    assert done.summary["progress"]["objects_done"] == 1
    assert (copy.folder / "a").read_bytes() == b"x" * 100
    again = command.run("sync", source.url, copy.url, "--json").expect(0)
    assert again.summary["progress"]["objects_skipped"] == 2


def test_symbolic_links_are_skipped_with_one_notice_or_followed(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "from")
    write_tree(source.folder, {"real/x": 5})
    for name, end in {"file": "real/x", "folder": "real", "dangling": "nowhere", "circle": ".", "self": "self"}.items():
        (source.folder / name).symlink_to(end)
    done = command.run("cp", "-r", source.url, tmp_path / "plain").expect(0)
    assert "note: 5 symbolic links skipped; --follow-symlinks copies what they point to" in done.stderr
    assert errors(done) == []
    assert set(FilePlace(tmp_path / "plain").sizes()) == {"real/x"}
    followed = command.run("cp", "-r", "--follow-symlinks", source.url, tmp_path / "full", "--json").expect(4)
    assert {Path(failure["source"]).name for failure in followed.failures} == {"dangling", "circle", "self"}
    assert set(FilePlace(tmp_path / "full").sizes()) == {"real/x", "file", "folder/x"}
    named = command.run("cp", source.folder / "file", tmp_path / "one").expect(1)
    assert "--follow-symlinks" in named.stderr
    command.run("cp", "--follow-symlinks", source.folder / "file", tmp_path / "one").expect(0)


def test_listings_and_comparisons_count_symbolic_links_in_one_notice(command: Command, tmp_path: Path) -> None:
    tree, copy = FilePlace(tmp_path / "from"), FilePlace(tmp_path / "to")
    for place in (tree, copy):
        write_tree(place.folder, {"real/x": 5})
    for name in ("one", "two"):
        (tree.folder / name).symlink_to("real/x")
    for words, notice in {
        ("ls", "-r", tree.url): "note: 2 symbolic links skipped\n",
        ("du", tree.url): "note: 2 symbolic links skipped\n",
        ("rm", "-r", "--dry-run", tree.url): "note: 2 symbolic links left in place\n",
        (
            "check",
            tree.url,
            copy.url,
        ): "note: 2 symbolic links skipped; --follow-symlinks compares what they point to\n",
    }.items():
        done = command.run(*words).expect(0)
        assert done.stderr.count("note: ") == 1
        assert notice in done.stderr
    followed = command.run("check", "--follow-symlinks", tree.url, copy.url).expect(6)
    assert followed.stdout.split() == ["missing", "one", "missing", "two"]


def test_destinations_of_different_kinds_have_separate_endpoints(
    command: Command, place: MakePlace, files: FilePlace, tmp_path: Path
) -> None:
    one, other = place("versitygw"), place("gcs")
    places = [one.url, other.url, str(tmp_path / "third")]
    endpoints = [flags[flags.index("--dst-endpoint") + 1] for flags in (one.flags("dst"), other.flags("dst"))]
    words = ["cp", "-r", files.url, *(f"--to={each}" for each in places), "--dst-region", "us-east-1"]
    words += [f"--dst-profile={each}" for each in ("versitygw", "-", "-")]
    refused = command.run(*words, "--dst-endpoint", endpoints[0]).expect(2)
    assert "--dst-endpoint once for each" in refused.stderr
    command.run(*words, *(f"--dst-endpoint={each}" for each in [*endpoints, "-"])).expect(0)
    for made in (one, other, FilePlace(tmp_path / "third")):
        assert set(made.sizes()) == set(files.sizes())


def test_check_compares_files_by_the_requested_rule(command: Command, tmp_path: Path) -> None:
    for name, content, modified_s in (("one", b"old", 1000), ("other", b"new", 2000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(content)
        os.utime(tmp_path / name / "a", (modified_s, modified_s))
    sides = (tmp_path / "one", tmp_path / "other")
    command.run("check", "--compare", "size", *sides).expect(0)
    assert "(time)" in command.run("check", "--compare", "time", *sides).expect(6).stdout
    assert "(time)" in command.run("check", "--compare", "auto", *sides).expect(6).stdout
    for words in ([], ["--compare", "checksum"]):
        assert "(checksum)" in command.run("check", *words, *sides).expect(6).stdout
    assert "(checksum)" in command.run("check", "--read", *sides).expect(6).stdout
    assert "--read" in command.run("check", "--read", "--compare", "size", *sides).expect(2).stderr
    os.utime(tmp_path / "other" / "a", (1000, 1000))
    for rule in ("time", "auto"):
        command.run("check", "--compare", rule, *sides).expect(0)


@pytest.mark.parametrize("what", ["FIFO", "socket", "device"])
def test_a_source_that_is_not_a_regular_file_is_described(command: Command, tmp_path: Path, what: str) -> None:
    source = tmp_path / "odd"
    if what == "FIFO":
        os.mkfifo(source)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(source))
    else:
        source = Path("/dev/zero")
    for verb in ("cp", "mv"):
        refused = command.run(verb, source, tmp_path / "copy").expect(1)
        assert f"a {what}" in refused.stderr and "no such file" not in refused.stderr
    assert f"a {what}" in command.run("cat", source).expect(1).stderr
    listed = tmp_path / "names"
    listed.write_text(f"{source.name}\n")
    refused = command.run("cp", "--files-from", listed, source.parent, tmp_path / "copies").expect(1)
    assert f"a {what}" in refused.stderr
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_a_deletion_with_temporary_errors_has_their_exit_code(
    command: Command, bucket: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    bucket.put("one", b"1")
    bucket.put("two", b"2")
    refuse = Answer(503, "SlowDown")
    proxy.add(Rule(refuse, when=lambda request: request.method == "DELETE" or "delete" in request.query))
    command.run("mv", "-r", bucket.url, str(tmp_path / "to"), *bucket.flags("src")).expect(5)
    assert len(proxy.requests(lambda request: "delete" in request.query)) == TRIES
    assert set(bucket.sizes()) == {"one", "two"}
    (job,) = command.jobs()
    assert job["state"] == "interrupted"
    proxy.clear()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert bucket.sizes() == {}
