"""Stores that never finish or return only errors: every job ends with one clear error, and can be resumed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command, Finished
from testbed.faults import Rule
from testbed.odd_stores import KINDS, Answer, Hang, Kind, OddPlace, OddStore, Request, Wait, during
from testbed.trees import MIB, payload

CHUNK = ("--chunk-size", "5MiB")
CONTENT = payload("k", 12 * MIB)
WORK_S = 2
LIMIT = ("--store-work", f"{WORK_S}s")
STALL_S = 4
SINK_STALL_S = 6
"""Long enough for two more processes to start and to connect on a busy host."""
SOON_S = 200.0
"""Time limit of a test, well below the minutes that each object would take by itself."""


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that is only set at the end of the test, so that no thread of the server waits for ever."""
    event = threading.Event()
    yield event
    event.set()


# Stores that never finish.


@pytest.mark.parametrize("operation", ["complete upload", "put"])
def test_an_endless_answer_of_white_space_fails_the_object(
    store: OddStore, command: Command, tmp_path: Path, never: threading.Event, operation: str
) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(CONTENT if operation == "complete upload" else b"small")
    rule = store.add(Rule(Wait(never.wait, keep_alive=True), when=during(operation)))
    arguments = [str(source), f"{place.url}/k", *CHUNK, *LIMIT, *place.flags("dst")]
    done = command.run("cp", "--json", *arguments, timeout_s=SOON_S).expect(5)
    assert done.failure_kinds == ["unavailable"]
    assert "still working after" in done.failures[0]["message"]
    assert rule.strikes == 1, "it is not requested again"


def test_a_copy_with_an_endless_answer_of_white_space_fails(
    store: OddStore, command: Command, never: threading.Event
) -> None:
    place = OddPlace(store, command)
    place.put("from", CONTENT)
    rule = store.add(Rule(Wait(never.wait, keep_alive=True), when=during("copy")))
    arguments = [f"{place.url}/from", f"{place.url}/k", *place.flags("src"), *place.flags("dst")]
    done = command.run("cp", "--json", *arguments, *LIMIT, timeout_s=SOON_S).expect(5)
    assert "still working after" in done.failures[0]["message"]
    assert rule.strikes == 1


def test_a_copy_without_progress_is_aborted_and_leaves_nothing(azure_store: OddStore, command: Command) -> None:
    place = OddPlace(azure_store, command)
    place.put("from", CONTENT)
    azure_store.habits.pending_copies = -1
    arguments = [f"{place.url}/from", f"{place.url}/k", *place.flags("src"), *place.flags("dst")]
    done = command.run("cp", "--json", *arguments, *LIMIT, timeout_s=SOON_S).expect(5)
    assert done.failure_kinds == ["unavailable"]
    assert f"no progress for {WORK_S} s" in done.failures[0]["message"]
    assert len(azure_store.requests(during("copy"))) == 1
    assert len(azure_store.requests(during("abort copy"))) == 1
    assert place.contents() == {"from": CONTENT}


def test_a_copy_that_makes_progress_is_waited_for(azure_store: OddStore, command: Command) -> None:
    place, content = OddPlace(azure_store, command), payload("long", 64 * MIB)
    place.put("from", content)
    azure_store.habits.pending_copies = 8
    arguments = [f"{place.url}/from", f"{place.url}/k", *place.flags("src"), *place.flags("dst")]
    command.run("cp", "--json", *arguments, *LIMIT).expect(0)
    assert len(azure_store.requests(during("copy"))) == 1
    assert place.contents() == {"from": content, "k": content}


# Stores that return only errors.


def moves_bytes(request: Request) -> bool:
    return during("get")(request) or during("put")(request)


def one_kind(quick: Kind) -> pytest.MarkDecorator:
    """Run a test with each kind of store; those other than `quick` are slow."""
    kinds = [pytest.param(kind, marks=[] if kind == quick else pytest.mark.slow) for kind in KINDS]
    return pytest.mark.parametrize("store", kinds, indirect=True)


@pytest.mark.parametrize("fault", ["busy", "broken", "silent"])
@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_store_that_returns_only_errors_ends_the_job(
    store: OddStore, command: Command, tmp_path: Path, side: str, fault: str
) -> None:
    place, files = OddPlace(store, command), tmp_path / "files"
    files.mkdir()
    contents = {f"d/{number:03}": b"content" for number in range(300)}
    for key, content in contents.items():
        (place.put if side == "source" else lambda key, content: (files / key[2:]).write_bytes(content))(key, content)
    action = {"busy": Answer(503, "SlowDown"), "broken": Answer(500, "InternalError"), "silent": Hang()}[fault]
    store.add(Rule(action, when=moves_bytes))
    options = ["--stall", f"{STALL_S}s"]
    if side == "source":
        words = ["cp", "-r", f"{place.url}/d", str(files), *place.flags("src"), *options]
    else:
        words = ["cp", "-r", str(files), f"{place.url}/d", *place.flags("dst"), *options]
    done = command.run(*words, timeout_s=SOON_S).expect(5)
    if fault == "silent":
        # A request without an answer is an error when its own time is over. How the job words it depends on whether
        # that or the end of the job's patience comes first.
        assert "hint: check the endpoint and the network" in done.stderr
    else:
        assert f"{place.url} has returned only errors" in done.stderr
        assert f"for {STALL_S} s (--stall)" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error: ")]) == 1
    store.clear()
    (job,) = command.jobs()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    if side == "source":
        assert {f"d/{path.name}": path.read_bytes() for path in files.iterdir()} == contents
    else:
        assert place.contents() == contents


@one_kind("azure")
def test_a_destination_that_returns_only_errors_does_not_delay_the_other(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    good, files = tmp_path / "good", tmp_path / "files"
    place = OddPlace(store, command)
    files.mkdir()
    for number in range(300):
        (files / f"{number:03}").write_bytes(b"content")
    store.add(Rule(Answer(503, "SlowDown"), when=moves_bytes))
    topology = write(with_limits(chain(), store_retry_s=2), tmp_path / "topology.json")
    words = ["cp", "-r", str(files), "--to", str(good), "--to", place.url, *place.flags("dst")]
    done = command.run(*words, "--topology", str(topology), "--stall", f"{STALL_S}s", timeout_s=SOON_S).expect(5)
    assert len([path for path in good.rglob("*") if path.is_file()]) == 300
    assert "returns only errors" in done.stderr or "returned only errors" in done.stderr
    assert place.contents() == {}


def test_a_store_that_recovers_in_time_is_waited_for(store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(b"content")
    store.add(Rule(Answer(503, "SlowDown"), when=moves_bytes, count=3))
    command.run("cp", str(source), f"{place.url}/k", *place.flags("dst"), "--stall", f"{STALL_S}s").expect(0)
    assert place.contents() == {"k": b"content"}


def copied_through_a_sink(command: Command, place: OddPlace, folder: Path, objects: int, stall_s: int) -> Finished:
    """Copy files to a store through a gateway that tries each object for a second."""
    files = folder / "files"
    files.mkdir()
    for number in range(objects):
        (files / f"{number:03}").write_bytes(b"content")
    topology = write(with_limits(chain(), store_retry_s=1), folder / "topology.json")
    words = ["cp", "-r", str(files), f"{place.url}/d", *place.flags("dst"), "--topology", str(topology)]
    return command.run(*words, "--stall", f"{stall_s}s", timeout_s=SOON_S)


@pytest.mark.slow
@one_kind("s3")
def test_a_store_that_returns_only_errors_to_a_sink_ends_the_job(
    store: OddStore, command: Command, tmp_path: Path
) -> None:
    """The lead learns about the errors from the sink's answers. It stops long before all objects have been tried."""
    place = OddPlace(store, command)
    store.add(Rule(Answer(503, "SlowDown"), when=during("put")))
    done = copied_through_a_sink(command, place, tmp_path, objects=20_000, stall_s=SINK_STALL_S).expect(5)
    assert f"{place.url} has returned only errors for {SINK_STALL_S} s (--stall)" in done.stderr


def test_objects_that_all_fail_at_a_sink_have_one_cause(
    azure_store: OddStore, command: Command, tmp_path: Path
) -> None:
    place = OddPlace(azure_store, command)
    azure_store.add(Rule(Answer(503, "SlowDown"), when=during("put")))
    done = copied_through_a_sink(command, place, tmp_path, objects=100, stall_s=60).expect(5)
    assert f"{place.url} returns only errors" in done.stderr
