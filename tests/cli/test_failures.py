"""Failed objects in few lines."""

import pytest

from tradewind.cli import failures
from tradewind.cli.failures import NAMED_OF_A_PATTERN_MAX, Failures
from tradewind.model.event import ObjectFailed


def failed(number: int, kind: str = "no_space", words: str = "disk full, request A{}") -> ObjectFailed:
    key = f"s3://b/{number}"
    return ObjectFailed(f"/from/{number}", key, kind, f"put {key}: {words.format(number)}", "free some space")


def test_first_failures_of_a_pattern_are_named_at_once_and_others_counted_at_the_end() -> None:
    waiter = Failures()
    now = [line for number in range(5_000) for line in waiter.add(failed(number)) if line.startswith("error:")]
    assert now == [f"error: /from/{n}: put s3://b/{n}: disk full, request A{n}" for n in range(NAMED_OF_A_PATTERN_MAX)]
    assert waiter.end(None) == ["error: 4,997 objects more: put …: disk full, request A0"]
    assert waiter.end(None) == []


def test_an_object_is_named_once() -> None:
    for source, message, line in (
        ("s3://b/k", "get s3://b/k: no", "error: get s3://b/k: no"),
        ("s3://b/k", "put s3://c/k: no", "error: s3://b/k: put s3://c/k: no"),
        ("s3://b/k", "put s3://b/k/x: no", "error: s3://b/k: put s3://b/k/x: no"),
    ):
        assert Failures().add(ObjectFailed(source, "", "invalid_key", message))[0] == line


def test_different_patterns_are_distinguished() -> None:
    waiter = Failures()
    words = ["disk full", "disk on fire"]
    assert [len(waiter.add(failed(1, words=each))) for each in words] == [2, 2]
    assert waiter.end(None) == []


def test_failures_of_a_whole_store_wait_for_the_final_message() -> None:
    waiter = Failures()
    assert [waiter.add(failed(number, "forbidden", "denied")) for number in range(5)] == [[]] * 5
    assert waiter.end("5 objects: not authorised to write s3://b: put s3://b/0: denied") == []
    for number in range(5):
        waiter.add(failed(number, "forbidden", "denied"))
    lines = [line for line in waiter.end("interrupted") if line.startswith("error:")]
    assert lines[0] == "error: /from/0: put s3://b/0: denied"
    assert lines[-1] == "error: 2 objects more: put …: denied"


def test_a_held_failure_is_shown_at_the_end() -> None:
    waiter = Failures(hold=True)
    assert waiter.add(failed(1)) == []
    assert waiter.end(None)[0].startswith("error: /from/1: put s3://b/1")


def test_the_number_of_patterns_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "PATTERNS_MAX", 2)
    waiter = Failures()
    lines = [waiter.add(failed(1, words=words)) for words in ("a", "b", "c", "d")]
    assert [len(each) for each in lines] == [2, 2, 0, 0]
    assert waiter.end(None) == ["error: 2 objects failed for other reasons: --report FILE lists them all"]
