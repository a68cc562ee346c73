"""File systems that report only when a file is closed that it could not be stored.

Network file systems do so when a quota is used up: they accept every write before.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults.fuse import FuseError, FuseFolder
from testbed.trees import MIB, tree_hashes, write_tree

SMALL_BYTES = 100
LARGE_BYTES = 40 * MIB
"""More than one part."""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder whose quota is used up."""
    try:
        with FuseFolder(tmp_path / "full", tmp_path / "backing", close_error="EDQUOT") as made:
            yield made.path
    except FuseError as error:
        pytest.skip(str(error))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path / "tree", {"small": SMALL_BYTES, "large": LARGE_BYTES})
    return tmp_path / "tree"


@pytest.mark.parametrize("verb", ["cp", "mv", "sync"])
def test_a_file_whose_close_fails_is_not_called_copied(command: Command, tree: Path, full: Path, verb: str) -> None:
    before = tree_hashes(tree)
    done = command.run(verb, *(["-r"] if verb != "sync" else []), tree, full / "copy", "--json")
    assert done.code != 0
    assert {Path(failure["destination"]).name for failure in done.failures} == set(before)
    assert tree_hashes(full / "copy") == {}
    assert tree_hashes(tree) == before


def test_standard_input_whose_close_fails_is_not_called_written(command: Command, full: Path) -> None:
    for size_bytes in (SMALL_BYTES, LARGE_BYTES):
        done = command.run("cp", "-", full / "copy", stdin=bytes(size_bytes))
        assert (done.code, "Quota exceeded" in done.stderr) == (1, True), done.stderr
    assert tree_hashes(full) == {}


@pytest.mark.parametrize("words", [["cat"], ["cp"]])
def test_an_output_whose_close_fails_is_an_error(command: Command, tree: Path, full: Path, words: list[str]) -> None:
    destination = ["-"] if words == ["cp"] else []
    with (full / "output").open("wb", buffering=0) as output:
        done = subprocess.run(
            [str(command.binary), *words, str(tree / "small"), *destination],
            env=command.full_environment(),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "standard output" in done.stderr) == (1, True), done.stderr


def test_a_report_whose_close_fails_is_an_error(command: Command, tree: Path, full: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, tmp_path / "copy", "--report", full / "report")
    assert (done.code, "cannot write the report" in done.stderr) == (1, True), done.stderr
    assert tree_hashes(tmp_path / "copy") == tree_hashes(tree)


@pytest.mark.parametrize("words", [["cp", "-r", "--json"], ["sync", "--json"], ["ls", "--json"]])
def test_events_whose_close_fails_are_an_error(
    command: Command, tree: Path, full: Path, tmp_path: Path, words: list[str]
) -> None:
    places = [tree] if words[0] == "ls" else [tree, tmp_path / "copy"]
    with (full / "output").open("wb", buffering=0) as output:
        done = subprocess.run(
            [str(command.binary), *words, *map(str, places)],
            env=command.full_environment(),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "standard output" in done.stderr) == (1, True), done.stderr
