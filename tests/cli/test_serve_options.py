"""The options of `tradewind serve` all reach the server."""

import os
import signal
import sys
from argparse import ArgumentParser
from types import SimpleNamespace

import pytest

from tradewind.cli import serve
from tradewind.service.__main__ import _arguments

#: Values of options that are no free text.
VALUES = {"jobs": "3", "lease": "9", "via": "fleet", "max_cost": "2USD", "max_vms": "4", "tune_links": "on"}


class StartedError(Exception):
    pass


def test_all_options_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = ArgumentParser()
    serve.add_arguments(parser)
    given = []
    for action in parser._actions[1:]:
        option = action.option_strings[0]
        given.append(option if action.nargs == 0 else f"{option}={VALUES.get(action.dest, f'a {action.dest}')}")
    args = parser.parse_args(given)
    args.gateway, args.configuration = None, SimpleNamespace(path="configuration")

    def start(program: str, words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["server", *words[3:]])
        raise StartedError

    monkeypatch.setattr(os, "execv", start)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: set())
    with pytest.raises(StartedError):
        serve.run(args)
    got, own = vars(_arguments()), {"console": None, "no_browser": False, "sites_file": "configuration"}
    expected = {name: value for name, value in vars(args).items() if name != "configuration"}
    assert got == {**expected, **own}
