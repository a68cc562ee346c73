"""Wildcards in places, on real servers and on files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place

KINDS = ["versitygw", "moto", "gcs", "azure", "file"]
KEYS = ["2023-1/x", "2024-1/x", "2024-2/x", "2024-2/deep/y.csv", "a.csv", "b.csv", "other"]


def quick(*kinds: str) -> list[object]:
    """Return all kinds of stores, the others than these marked slow."""
    return [pytest.param(kind, marks=[] if kind in kinds else [pytest.mark.slow]) for kind in KINDS]


def filled(there: Place, *more: str) -> list[str]:
    """Write the objects of these tests; return the flags to reach them."""
    for key in (*KEYS, *more):
        there.put(f"in/{key}", key.encode())
    return there.flags("src")


@pytest.mark.parametrize("kind", quick("moto", "file"))
def test_ls_and_du_take_wildcards(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    flags = filled(there)

    def ls(*words: str) -> list[str]:
        return command.run("ls", *words, *flags).expect(0).stdout.split()

    assert ls(f"{there.url}/in/2024-*/x") == ["2024-1/x", "2024-2/x"]
    assert ls(f"{there.url}/in/2024-*") == ["2024-1/", "2024-2/"]
    assert ls(f"{there.url}/in/?.csv") == ["a.csv", "b.csv"]
    assert ls(f"{there.url}/in/*/d*") == ["2024-2/deep/"]
    assert ls("-r", f"{there.url}/in/2024-*") == ["2024-1/x", "2024-2/deep/y.csv", "2024-2/x"]
    assert ls(f"{there.url}/in/**.csv") == ["2024-2/deep/y.csv", "a.csv", "b.csv"]
    summed = json.loads(command.run("du", "--json", f"{there.url}/in/2024-*", *flags).expect(0).stdout)
    assert (summed["objects"], summed["url"][-10:]) == (3, "/in/2024-*")
    missing = command.run("ls", f"{there.url}/in/z*", *flags).expect(3)
    assert "nothing exists at" in missing.stderr and "/in/z*" in missing.stderr


@pytest.mark.parametrize("kind", quick("versitygw", "file"))
def test_cp_names_copies_by_the_fixed_directory(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str
) -> None:
    there = place(kind)
    flags = filled(there)
    command.run("cp", f"{there.url}/in/2024-*/x", f"{tmp_path}/one/", *flags).expect(0)
    assert found(tmp_path / "one") == ["2024-1/x", "2024-2/x"]
    command.run("cp", "-r", f"{there.url}/in/2024-*", f"{tmp_path}/all", "--exclude", "*.csv", *flags).expect(0)
    assert found(tmp_path / "all") == ["2024-1/x", "2024-2/x"]
    refused = command.run("cp", f"{there.url}/in/*.csv", f"{tmp_path}/none", *flags).expect(2)
    assert f"write {tmp_path}/none/" in refused.stderr
    several = command.run("cp", f"{there.url}/in/*.csv", f"{there.url}/in/other", f"{tmp_path}/none/", *flags).expect(2)
    assert "one of several sources" in several.stderr
    command.run("cp", f"{there.url}/in/z*", f"{tmp_path}/none/", *flags).expect(3)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", quick("moto", "file"))
def test_mv_moves_what_matches_into_a_directory_beside(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    flags = [*filled(there), *there.flags("dst")]
    command.run("mv", f"{there.url}/in/*.csv", f"{there.url}/in/done/", *flags).expect(0)
    assert {"in/done/a.csv", "in/done/b.csv", "in/2024-2/deep/y.csv"} <= set(there.sizes())
    assert "in/a.csv" not in there.sizes()
    command.run("mv", "-r", f"{there.url}/in/*", f"{there.url}/in/done/", *flags).expect(2)


@pytest.mark.parametrize("kind", quick("file"))
def test_sync_deletes_only_what_the_pattern_covers(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str
) -> None:
    there = place(kind)
    flags = filled(there)
    for name in ("2024-9/gone", "2022-1/kept"):
        (tmp_path / "copy" / name).parent.mkdir(parents=True)
        (tmp_path / "copy" / name).write_text("old")
    command.run("sync", f"{there.url}/in/2024-*", f"{tmp_path}/copy", "--delete", "-y", *flags).expect(0)
    assert found(tmp_path / "copy") == ["2022-1/kept", "2024-1/x", "2024-2/deep/y.csv", "2024-2/x"]
    command.run("check", f"{there.url}/in/2024-*", f"{tmp_path}/copy", *flags).expect(0)


@pytest.mark.parametrize("kind", quick("versitygw", "file"))
def test_rm_deletes_what_matches_and_an_exact_name_alone(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    flags = filled(there, "st*r", "star", "d*/x", "dir/x")
    command.run("rm", f"{there.url}/in/st*r", *flags).expect(0)
    command.run("rm", "-r", f"{there.url}/in/d*", *flags).expect(0)
    left = set(there.sizes())
    assert {"in/star", "in/dir/x"} <= left and not {"in/st*r", "in/d*/x"} & left
    command.run("rm", f"{there.url}/in/?.csv", *flags).expect(0)
    command.run("rm", f"{there.url}/in/2024-*", *flags).expect(3)
    command.run("rm", f"{there.url}/in/2024-*/", *flags).expect(2)
    assert {"in/2024-1/x", "in/2024-2/deep/y.csv"} <= set(there.sizes()) and "in/a.csv" not in there.sizes()
    command.run("rm", "-r", f"{there.url}/in/2024-*", *flags).expect(0)
    assert set(there.sizes()) == {"in/2023-1/x", "in/other", "in/star", "in/dir/x"}


def test_a_pattern_of_wildcards_alone_counts_as_the_bucket(place: Callable[[str], Place], command: Command) -> None:
    there = place("moto")
    there.put("k", b"1")
    for pattern in ("*", "**", "*/*", "[!a]*", "[a-z]**"):
        refused = command.run("rm", f"{there.url}/{pattern}", *there.flags("src")).expect(2)
        assert f"the whole of {there.url}" in refused.stderr
    missing = command.run("rm", f"{there.url}-none/k*", *there.flags("src")).expect(3)
    assert missing.stderr.count("error:") == 1
    assert list(there.sizes()) == ["k"]


def found(folder: Path) -> list[str]:
    """Return the files below a folder, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", quick("moto", "file"))
def test_cat_writes_what_a_pattern_matches_in_order(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    flags = filled(there)

    def cat(*words: str) -> str:
        return command.run("cat", *words, *flags).expect(0).stdout

    assert cat(f"{there.url}/in/2024-*/x", f"{there.url}/in/other") == "2024-1/x2024-2/xother"
    assert cat(f"{there.url}/in/?.csv", "--range", "0-0") == "ab"
    assert "nothing" in command.run("cat", f"{there.url}/in/z*", *flags).expect(3).stderr
