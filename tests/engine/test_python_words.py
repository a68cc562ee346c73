"""Errors of the Python interface name its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

import tradewind
from tradewind.engine.python_words import ARGUMENTS, in_python
from tradewind.engine.request import Options
from tradewind.errors import UsageError


def test_a_directory_is_refused_with_the_argument_that_copies_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError) as refused:
        tradewind.copy(tmp_path / "data", tmp_path / "copy")
    assert refused.value.hint == "add Options(recursive=True) to copy what is in it"


def test_jobs_are_resumed_by_a_method() -> None:
    hint = "check the network, then run `tradewind jobs resume 20250131-120000-k3f9t`"
    assert in_python(hint) == "check the network, then run Client.resume('20250131-120000-k3f9t')"
    assert in_python("resume with: tradewind jobs resume 20250131-120000-k3f9t").endswith(
        ".resume('20250131-120000-k3f9t')"
    )


def test_names_of_files_are_left_alone() -> None:
    for text in ("/data/-r/x is a directory", "a--delete", "no such file: x-r", "s3://b/--exclude-this"):
        assert in_python(text) == text


def test_each_argument_exists() -> None:
    names = {name.partition("=")[0][len("Options(") :] for name in ARGUMENTS.values() if name.startswith("Options(")}
    assert names <= set(Options.__dataclass_fields__)
