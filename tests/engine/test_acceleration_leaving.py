"""Proxies that leave with their machines, and when they are drained."""

from __future__ import annotations

from tradewind.engine.acceleration_course import Leaving
from tradewind.engine.acceleration_leaving import LeavingProxies
from tradewind.engine.leaving import LEAVING_PAUSE_S
from tradewind.model.split import SplitStatus

PATH = ("a", "b")


def status(flows: int) -> SplitStatus:
    return SplitStatus("running", (), flows, 0, 0, 0, 0, {}, 0, 0, (), {})


def test_a_proxy_is_drained_once_no_path_has_it_and_its_last_connection_has_ended() -> None:
    proxies = LeavingProxies(lambda: {"a": 100.0})
    assert [*proxies.look(10.0)] == ["a"]
    cases: list[tuple[dict[str, SplitStatus | str], list[tuple[str, ...]], bool]] = [
        ({"a": status(0)}, [PATH], False),
        ({"a": status(1)}, [()], False),
        ({"a": "no answer"}, [()], False),
        ({}, [()], False),
        ({"a": status(0)}, [("b",), ()], True),
    ]
    for looks, paths, is_drained in cases:
        assert proxies.of(PATH, looks, paths, 30.0) == (Leaving("a", 80.0, is_drained),)
    assert proxies.of(("b",), {}, [], 30.0) == (), "it was removed by a replan"
    assert proxies.of(PATH, {}, [], 999.0) == (Leaving("a", 0.0),)


def test_it_is_asked_for_from_time_to_time_and_a_new_machine_stays() -> None:
    answers = [{"a": 9.0}, {"a": 7.0}]
    proxies = LeavingProxies(lambda: answers.pop(0))
    assert [*proxies.look(0.0)] == [*proxies.look(LEAVING_PAUSE_S / 2)] == ["a"]
    proxies.renewed("a")
    assert [*proxies.look(LEAVING_PAUSE_S / 2)] == []
    assert [*proxies.look(LEAVING_PAUSE_S)] == ["a"] and answers == []
