"""Looking at objects on real servers: stat, parts of objects, sums of folders."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable

import pytest

from testbed.drive import Command
from testbed.places import Place
from testbed.trees import MIB, payload
from tradewind.cli.main import main

KINDS = ["versitygw", "moto", "gcs", "azure", "file"]


def quick(kind: str) -> list[object]:
    """Return all kinds of stores, the others than this one marked slow."""
    return [pytest.param(each, marks=[] if each == kind else [pytest.mark.slow]) for each in KINDS]


@pytest.mark.parametrize("kind", quick("moto"))
def test_stat_shows_what_the_store_states(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    there.put("d/a key", b"content")
    url = f"{there.url}/d/a key"
    facts = json.loads(command.run("stat", "--json", url, *there.flags("src")).expect(0).stdout)
    assert (facts["url"].removeprefix("file://"), facts["size_bytes"]) == (url, 7)
    assert facts["modified"].startswith("20")
    if kind in ("moto", "gcs"):
        assert facts["checksums"]["md5"] == base64.b64encode(hashlib.md5(b"content").digest()).decode()
    shown = command.run("head", url, *there.flags("src")).expect(0).stdout
    assert "size                 7 B\n" in shown and facts["modified"] in shown
    folder = command.run("stat", f"{there.url}/d", *there.flags("src"))
    assert folder.code in (1, 3) and "directory" in folder.stderr
    command.run("stat", f"{there.url}/missing", *there.flags("src")).expect(3)


@pytest.mark.parametrize("kind", quick("versitygw"))
def test_cat_writes_a_part_of_an_object(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there, content = place(kind), payload("object", 20 * MIB)
    there.put("object", content)

    def cat(*words: str) -> bytes:
        code, written, errors = command.run_bytes("cat", *words, f"{there.url}/object", *there.flags("src"))
        assert code == 0, errors
        return written

    assert cat("--range", "0-9") == content[:10]
    assert cat("--range", "5-") == content[5:]
    assert cat("--range", "-100") == content[-100:]
    assert cat("--range", f"{9 * MIB}-{90 * MIB}") == content[9 * MIB :]
    beyond = command.run("cat", "--range", f"{20 * MIB}-", f"{there.url}/object", *there.flags("src")).expect(1)
    assert "begins after the end" in beyond.stderr and beyond.stdout == ""


@pytest.mark.parametrize("words", ["9-5", "a-b", "-", "5", "1-2-3", f"{2**63}-"])
def test_a_range_that_means_nothing_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", f"--range={words}", "s3://bucket/key"]) == 2
    assert "hint: 0-99 for the first hundred" in capsys.readouterr().err


@pytest.mark.parametrize("kind", quick("file"))
def test_du_sums_folders_to_a_depth(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    for key, bytes in {"top": 1, "a/x": 2, "a/b/x": 4, "a/b/c/x": 8, "z/x": 16}.items():
        there.put(f"d/{key}", b"x" * bytes)

    def du(depth: int) -> dict[str, tuple[int, int]]:
        done = command.run("du", "--json", "--depth", str(depth), f"{there.url}/d", *there.flags("src")).expect(0)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        found = {line["url"].partition(f"{there.url}/d")[2].strip("/"): line for line in lines}
        assert [*found][-1] == ""
        return {name: (line["objects"], line["bytes"]) for name, line in found.items()}

    whole = {"": (5, 31)}
    assert du(0) == whole
    assert du(1) == {"a": (3, 14), "z": (1, 16), **whole}
    assert du(2) == {"a": (3, 14), "a/b": (2, 12), "z": (1, 16), **whole}
    assert "levels" in command.run("du", "--depth", "x", there.url).expect(2).stderr
