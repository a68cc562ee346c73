"""A destination where some directories change names, such as a memory card within another tree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults.fuse import FuseError, FuseFolder

TICK_S = 0.02
"""Longer than a tick of the kernel's clock: directories with the same times may be one directory."""


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[Path]:
    """A folder with a folder `card` that ignores case."""
    try:
        with FuseFolder(tmp_path / "destination", tmp_path / "backing", folds_below="card") as made:
            (made.path / "card").mkdir()
            time.sleep(TICK_S)
            yield made.path
    except FuseError as error:
        pytest.skip(str(error))


@pytest.fixture
def trimming(tmp_path: Path) -> Iterator[Path]:
    """A folder with a folder `card` that leaves out dots and spaces at the end of names."""
    try:
        with FuseFolder(tmp_path / "trimming", tmp_path / "trimmed", trims_below="card") as made:
            (made.path / "card").mkdir()
            time.sleep(TICK_S)
            yield made.path
    except FuseError as error:
        pytest.skip(str(error))


def tree(folder: Path, names: list[str]) -> Path:
    """Make files that contain their own names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "twins", [("card/README", "card/readme"), ("card/X/file", "card/x/file")], ids=["files", "directories"]
)
@pytest.mark.parametrize("verb", ["cp", "mv", "sync"])
def test_of_two_names_that_are_one_the_first_is_kept(
    command: Command, tmp_path: Path, destination: Path, twins: tuple[str, str], verb: str
) -> None:
    source = tree(tmp_path / "source", ["0", *twins])
    done = command.run(verb, *(["-r"] if verb != "sync" else []), source, destination, "--json").expect(4)
    assert done.summary["progress"]["objects_failed"] == 1
    (failed,) = done.failures
    assert "treats both as one" in failed["message"]
    refused = Path(failed["source"].removeprefix("file://")).relative_to(source).as_posix()
    (kept,) = set(twins) - {refused}
    assert (destination / kept).read_text(encoding="utf-8") == kept
    assert (source / refused).read_text(encoding="utf-8") == refused


def test_names_that_are_one_and_written_at_the_same_time_do_not_replace_each_other(
    command: Command, tmp_path: Path, destination: Path
) -> None:
    pairs = [(f"card/{number}/A", f"card/{number}/a") for number in range(40)]
    source = tree(tmp_path / "source", [name for pair in pairs for name in pair])
    done = command.run("cp", "-r", source, destination, "--json").expect(4)
    refused = {
        Path(failed["source"].removeprefix("file://")).relative_to(source).as_posix() for failed in done.failures
    }
    assert len(refused) == len(pairs)
    for pair in pairs:
        (kept,) = set(pair) - refused
        assert (destination / kept).read_text(encoding="utf-8") == kept


@pytest.mark.parametrize("name", ["card/notes", "card/folder/file"])
def test_a_file_with_another_spelling_is_not_replaced(
    command: Command, tmp_path: Path, destination: Path, name: str
) -> None:
    existing = name.upper().replace("CARD", "card")
    tree(destination, [existing])
    done = command.run("cp", "-r", tree(tmp_path / "source", ["0", name]), destination, "--json").expect(4)
    assert [failed["destination"].endswith(name) for failed in done.failures] == [True]
    assert (destination / existing).read_text(encoding="utf-8") == existing
    command.run("sync", tree(tmp_path / "same", ["0", existing]), destination, "--compare", "checksum").expect(0)


@pytest.mark.parametrize("verb", ["cp", "mv"])
def test_no_file_goes_into_a_directory_with_another_spelling(
    command: Command, tmp_path: Path, destination: Path, verb: str
) -> None:
    """Its twin would be taken for the file that the job has written, and replace it."""
    (destination / "card" / "x").mkdir()
    source = tree(tmp_path / "source", ["0", "card/X/a", "card/X/new/b", "card/x/a", "card/y/c"])
    done = command.run(verb, "-r", source, destination, "--json").expect(4)
    refused = {
        Path(failed["source"].removeprefix("file://")).relative_to(source).as_posix() for failed in done.failures
    }
    assert refused == {"card/X/a", "card/X/new/b"}
    for kept in ("0", "card/x/a", "card/y/c"):
        assert (destination / kept).read_text(encoding="utf-8") == kept
    for name in refused:
        assert (source / name).read_text(encoding="utf-8") == name


@pytest.mark.parametrize(
    "twins",
    [
        ("card/a", "card/a."),
        ("card/a", "card/a "),
        ("card/d/file", "card/d./file"),
        ("card/d/x/file", "card/d./x/file"),
    ],
    ids=["dot", "space", "folder", "folder above"],
)
@pytest.mark.parametrize("verb", ["cp", "mv", "sync"])
def test_a_name_whose_end_is_left_out_is_refused(
    command: Command, tmp_path: Path, trimming: Path, twins: tuple[str, str], verb: str
) -> None:
    plain = [name.removeprefix("card/") for name in twins]
    source = tree(tmp_path / "source", ["0", *twins, *plain])
    done = command.run(verb, *(["-r"] if verb != "sync" else []), source, trimming, "--json").expect(4)
    (failed,) = done.failures
    assert failed["source"].endswith(twins[1])
    assert "leaves out" in failed["message"]
    for name in (twins[0], *plain):
        assert (trimming / name).read_text(encoding="utf-8") == name
    assert (source / twins[1]).read_text(encoding="utf-8") == twins[1]
