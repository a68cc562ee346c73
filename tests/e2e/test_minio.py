"""MinIO: listings that begin after a key lose keys there, so Tradewind never requests one."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import HttpProxy
from testbed.places import S3Place
from testbed.servers import Server

OBJECTS_PER_DIRECTORY = 1_700
"""More than a page, and enough for Tradewind to list ranges of keys in parallel where it can."""


@pytest.mark.slow
@pytest.mark.parametrize("hides", [None, "server"], ids=["named", "behind a proxy without its name"])
def test_no_object_beside_a_directory_with_a_longer_name_is_lost(
    minio_server: Server, command: Command, tmp_path: Path, hides: str | None
) -> None:
    tree, there = tmp_path / "tree", S3Place(minio_server, command)
    with HttpProxy(minio_server.endpoint, hides=hides) as proxy:
        there.endpoint = proxy.endpoint
        compare_listings(there, command, tree)


def compare_listings(there: S3Place, command: Command, tree: Path) -> None:
    for folder in ("b/c", "b/c.d", "b/c/x"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
        for number in range(OBJECTS_PER_DIRECTORY):
            (tree / folder / f"{number:04}").write_text("x")
    names = sorted(str(path.relative_to(tree / "b")) for path in (tree / "b").rglob("*") if path.is_file())
    command.run("cp", "-r", tree, there.url, *there.flags("dst")).expect(0)

    def ls(place: str) -> list[str]:
        return command.run("ls", "-r", f"{there.url}/{place}", *there.flags("src")).expect(0).stdout.splitlines()

    assert ls("b") == names and ls("b/c*") == names
    assert ls("b/c/x/1*") == [name.removeprefix("c/x/") for name in names if name.startswith("c/x/1")]
    command.run("check", tree, there.url, "--compare", "size", *there.flags("dst")).expect(0)
    again = command.run("sync", there.url, tree.parent / "copy", "--delete", "-y", *there.flags("src")).expect(0)
    assert f"moved   {len(names):,} objects" in again.stderr
