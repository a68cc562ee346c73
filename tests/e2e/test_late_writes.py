"""Writes that arrive late, and writes to a destination that has changed since the job read it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.chains import chain, with_limits, write
from testbed.drive import Command
from testbed.faults import Rule
from testbed.odd_stores import KINDS, Call, Hang, Kind, Later, OddPlace, OddStore, Request, during
from testbed.trees import MIB, payload

IDLE_S = 1
NEW = payload("new", 6 * MIB)
MANY = 300
"""Number of small objects: more than one bundle, and more than are written before the first answer."""


class LateWrite:
    """The first write of ``k`` gets no answer, and the store carries it out when the test calls ``lands``.

    Meanwhile the source, which held ``old``, is rewritten.
    """

    def __init__(self, store: OddStore, source: Path) -> None:
        self._source, self._gate, self._landed = source, threading.Event(), threading.Event()
        source.write_bytes(b"old")
        store.add(Rule(Later(self._gate.wait, self._landed.set), when=self._is_first_write, count=1))

    def _is_first_write(self, request: Request) -> bool:
        if not during("put", "k")(request):
            return False
        if self._source.read_bytes() == b"old":
            self._source.write_bytes(b"newer")
        return True

    def lands(self) -> None:
        """Let the store carry it out."""
        self._gate.set()
        assert self._landed.wait(30)


def one_try(tmp_path: Path, **limits: int) -> list[str]:
    """Return options of a transfer between gateways whose sink makes one attempt: then the lead retries the object."""
    document = with_limits(chain(), store_tries_max=1, **limits)
    return ["--topology", str(write(document, tmp_path / "topology.json"))]


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("there", [None, b"before"], ids=["new", "over"])
def test_an_older_version_that_lands_late_changes_nothing(
    store: OddStore, command: Command, tmp_path: Path, verb: str, there: bytes | None
) -> None:
    place, tree = OddPlace(store, command), tmp_path / "tree"
    tree.mkdir()
    if there is not None:
        place.put("k", there)
    late = LateWrite(store, tree / "k")
    options = ["-r"] if verb == "cp" else []
    command.run(verb, *options, str(tree), place.url, *one_try(tmp_path), *place.flags("dst")).expect(0)
    assert place.contents() == {"k": b"newer"}
    late.lands()
    assert place.contents() == {"k": b"newer"}


def test_a_late_write_is_reported_if_conditions_are_ignored(
    s3_store: OddStore, command: Command, tmp_path: Path
) -> None:
    s3_store.habits.ignores_write_conditions = True
    place, source = OddPlace(s3_store, command), tmp_path / "k"
    late = LateWrite(s3_store, source)
    # The first check is before the write, the second at the end.
    s3_store.add(Rule(Call(late.lands), when=during("head", "k"), skip=1, count=1))
    options = [*one_try(tmp_path), *place.flags("dst")]
    done = command.run("cp", "--json", str(source), f"{place.url}/k", *options).expect(1)
    assert [failure["kind"] for failure in done.failures] == ["overwritten"]
    assert place.contents() == {"k": b"old"}


def test_a_write_whose_answer_was_lost_is_not_repeated(store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(b"bytes")
    store.add(Rule(Hang(), when=during("put", "k"), count=1))
    topology = write(with_limits(chain(), store_idle_s=IDLE_S), tmp_path / "topology.json")
    command.run("cp", str(source), f"{place.url}/k", "--topology", str(topology), *place.flags("dst")).expect(0)
    statuses = [exchange.status for exchange in store.requests(during("put", "k"))]
    # Azure's odd store states no checksum of the written object, which is read instead.
    assert statuses == [None, 412]
    assert place.contents() == {"k": b"bytes"}


@pytest.mark.parametrize("verb", ["cp", "sync"])
def test_another_writers_object_is_replaced_after_it_was_detected(
    store: OddStore, command: Command, tmp_path: Path, verb: str
) -> None:
    place, tree = OddPlace(store, command), tmp_path / "tree"
    tree.mkdir()
    (tree / "k").write_bytes(b"bytes")
    store.add(Rule(Call(lambda: place.put("k", b"another's")), when=during("put", "k"), count=1))
    options = ["-r"] if verb == "cp" else []
    command.run(verb, *options, str(tree), place.url, *place.flags("dst")).expect(0)
    assert store.requests(during("put", "k"))[0].status == 412
    assert place.contents() == {"k": b"bytes"}


def test_another_writer_that_does_not_stop_fails_nothing(store: OddStore, command: Command, tmp_path: Path) -> None:
    place, source = OddPlace(store, command), tmp_path / "k"
    source.write_bytes(b"bytes")
    numbers = iter(range(100))
    store.add(Rule(Call(lambda: place.put("k", b"%d" % next(numbers))), when=during("put", "k")))
    command.run("cp", str(source), f"{place.url}/k", *place.flags("dst")).expect(0)
    assert place.contents() == {"k": b"bytes"}


@pytest.mark.parametrize("removes", [False, True], ids=["rewritten", "removed"])
@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_an_upload_is_completed_over_another_writers_object_and_sent_once(
    kind: Kind, removes: bool, command: Command, tmp_path: Path
) -> None:
    with OddStore(kind) as store:
        place, tree = OddPlace(store, command), tmp_path / "tree"
        tree.mkdir()
        (tree / "k").write_bytes(NEW)
        place.put("k", b"before")
        another: Callable[[], object] = (
            (lambda: store.objects.delete(place.bucket, "k")) if removes else (lambda: place.put("k", b"another's"))
        )
        store.add(Rule(Call(another), when=during("complete upload"), count=1))
        command.run("sync", str(tree), place.url, "--chunk-size", "5MiB", *place.flags("dst")).expect(0)
        assert place.contents() == {"k": NEW}
        assert len(store.requests(during("put part"))) == 2
        assert len(store.requests(during("complete upload"))) == 2


@pytest.mark.parametrize("verb", ["cp", "sync"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_refuses_conditions_is_written_without_them(
    kind: Kind, command: Command, tmp_path: Path, verb: str
) -> None:
    with OddStore(kind) as store:
        store.habits.refuses_conditions = True
        place, tree = OddPlace(store, command), tmp_path / "tree"
        tree.mkdir()
        for number in range(3):
            (tree / f"{number}").write_bytes(b"%d" % number)
        place.put("1", b"before")
        options = ["-r"] if verb == "cp" else []
        for _ in range(2):
            command.run(verb, *options, str(tree), place.url, *place.flags("dst")).expect(0)
        assert place.contents() == {"0": b"0", "1": b"1", "2": b"2"}


@pytest.mark.parametrize("again", [False, True], ids=["new", "over"])
def test_conditions_cost_small_objects_no_requests(
    s3_store: OddStore, command: Command, tmp_path: Path, again: bool
) -> None:
    place, tree = OddPlace(s3_store, command), tmp_path / "tree"
    tree.mkdir()
    for number in range(MANY):
        (tree / f"{number:03}").write_bytes(b"%d" % number)
        if again:
            place.put(f"{number:03}", b"before")
    command.run("cp", "-r", str(tree), place.url, *place.flags("dst")).expect(0)
    assert len(s3_store.requests(during("put"))) == MANY
    # New objects: one check for the first. Existing ones: for the first and a few others.
    assert len(s3_store.requests(during("head"))) <= (8 if again else 1)
    assert all(body != b"before" for body in place.contents().values())
