"""s3rver and SeaweedFS list `a/x` before `a-/x`: copies and deletions work, and comparisons are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place
from testbed.trees import MIB, payload, tree_hashes, write_tree

KINDS = pytest.mark.parametrize("kind", ["s3rver", "seaweedfs"])
ORDERED = {f"d/f{index:02}": index for index in range(40)}
UNORDERED = {"a/x": 1, "a/y": 2, "a-/x": 3, "a b/z": 4}


@KINDS
@pytest.mark.slow
def test_a_tree_goes_there_and_back_and_is_deleted(
    kind: str, command: Command, place: Callable[[str], Place], tmp_path: Path
) -> None:
    store, source, back = place(kind), tmp_path / "source", tmp_path / "back"
    write_tree(source, {**ORDERED, **UNORDERED})
    command.run("cp", "-r", source, store.url, *store.flags("dst")).expect(0)
    command.run("cp", "-r", store.url, back, *store.flags("src")).expect(0)
    assert tree_hashes(back) == tree_hashes(source)
    command.run("rm", "-r", "-y", store.url, *store.flags("src")).expect(0)
    assert store.sizes() == {}


@KINDS
@pytest.mark.slow
def test_a_comparison_is_refused_if_the_order_matters(
    kind: str, command: Command, place: Callable[[str], Place], tmp_path: Path
) -> None:
    store, source = place(kind), tmp_path / "source"
    write_tree(source, ORDERED)
    to = store.flags("dst")
    command.run("sync", source, store.url, *to).expect(0)
    again = command.run("sync", source, store.url, *to, "--json").expect(0)
    assert again.summary["progress"]["objects_done"] == 0
    write_tree(source, UNORDERED)
    command.run("cp", "-r", source, store.url, *to).expect(0)
    for verb in (["check"], ["sync"], ["sync", "--delete", "-y"]):
        done = command.run(*verb, source, store.url, *to).expect(1)
        assert "cannot be compared: its keys are not listed in order" in done.stderr
    assert store.sizes() == {**ORDERED, **UNORDERED}


@KINDS
@pytest.mark.slow
def test_an_object_of_several_parts_goes_there_and_back(
    kind: str, command: Command, place: Callable[[str], Place], tmp_path: Path
) -> None:
    store, source, back = place(kind), tmp_path / "large", tmp_path / "back"
    source.write_bytes(payload("large", 11 * MIB))
    to = ["--chunk-size", "5MiB", *store.flags("dst")]
    done = command.run("cp", source, f"{store.url}/large", *to, "--json").expect(0)
    assert done.summary["progress"]["retries"] == 0
    command.run("cp", f"{store.url}/large", back, "--chunk-size", "5MiB", *store.flags("src")).expect(0)
    assert back.read_bytes() == source.read_bytes()
