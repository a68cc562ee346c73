"""The demo's own output."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tradewind.cli.demo import _watch
from tradewind.cli.terminal import Terminal
from tradewind.model.event import Event, ObjectFailed, Progress, Summary


def test_a_failed_object_is_shown_once() -> None:
    summary = Summary("some_failed")
    failed = ObjectFailed("/from/a", "/to/a", "overwritten", "put /to/a: replaced", None)

    def events() -> Iterator[Event]:
        yield failed
        yield Progress()
        yield summary

    shown: list[Event] = []
    job = SimpleNamespace(events=events, gateways=(), summary=summary)
    terminal = SimpleNamespace(event=shown.append)
    _watch(cast(Any, job), cast(Any, SimpleNamespace(bytes=100)), cast(Terminal, terminal))
    assert shown == [failed, Progress()]
