"""`--ignore-existing` and `--flatten` on real servers and between files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Call, HttpProxy, Rule
from testbed.places import Place, S3Place

KINDS = ["versitygw", "moto", "gcs", "azure", "file"]


def quick(*kinds: str) -> list[object]:
    """Return all kinds of stores, the others than these marked slow."""
    return [pytest.param(kind, marks=[] if kind in kinds else [pytest.mark.slow]) for kind in KINDS]


def tree(folder: Path, *names: str) -> Path:
    """Write files whose content is their name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("kind", quick("moto", "file"))
def test_an_object_that_exists_is_never_replaced(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str
) -> None:
    there, here = place(kind), tree(tmp_path / "here", "a", "x/b", "x/c")
    flags = there.flags("dst")
    there.put("to/a", b"older and longer")
    there.put("to/x/b", b"")
    done = command.run("cp", "-r", "--json", here, f"{there.url}/to", "--ignore-existing", *flags).expect(0)
    assert (done.summary["progress"]["objects_done"], done.summary["progress"]["objects_skipped"]) == (1, 2)
    assert (there.get("to/a"), there.get("to/x/b"), there.get("to/x/c")) == (b"older and longer", b"", b"x/c")
    command.run("cp", here / "x/c", f"{there.url}/to/a", "-n", *flags).expect(0)
    command.run("cp", here / "a", here / "x", f"{there.url}/to/", "-r", "--no-clobber", *flags).expect(0)
    assert there.get("to/a") == b"older and longer" and len(there.sizes()) == 3
    listed = command.run("cp", here, f"{there.url}/to", "-n", "--files-from", "-", *flags, stdin=b"a\nx/b\n").expect(0)
    assert "2 already there" in listed.stderr
    command.run("sync", here, f"{there.url}/to", "--ignore-existing", *flags).expect(0)
    assert there.get("to/x/b") == b""
    done = command.run("mv", "-r", here, f"{there.url}/to", "-n", *flags).expect(0)
    assert "3 already there" in done.stderr and (here / "a").exists(), "a source without a copy stays"
    command.run("sync", here, f"{there.url}/to", *flags).expect(0)
    assert there.get("to/a") == b"a"


def test_an_object_that_appears_meanwhile_is_kept(
    command: Command, s3: S3Place, proxy: HttpProxy, tmp_path: Path
) -> None:
    here = tree(tmp_path / "here", "a")
    s3.endpoint = proxy.endpoint
    appears = Rule(Call(lambda: s3.put("to/a", b"theirs")), when=lambda request: request.method == "PUT", count=1)
    proxy.add(appears)
    done = command.run("cp", "-r", here, f"{s3.url}/to", "--ignore-existing", *s3.flags("dst"))
    assert done.code != 0 and s3.get("to/a") == b"theirs", done.stderr


@pytest.mark.parametrize("kind", quick("versitygw", "file"))
def test_flatten_leaves_out_the_directories_and_refuses_a_second_object_of_a_name(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str
) -> None:
    there, here = place(kind), tree(tmp_path / "here", "a", "x/b", "x/y/c", "z/b")
    (here / "empty").mkdir()
    done = command.run("cp", "-r", "--flatten", here, f"{there.url}/to", *there.flags("dst")).expect(4)
    assert {key: there.get(key) for key in there.sizes()} == {"to/a": b"a", "to/b": b"x/b", "to/c": b"x/y/c"}
    assert f"here/z/b: put {there.url}/to/b".replace("file://", "") in done.stderr.replace("file://", "")
    assert "an object of another directory gets this name (--flatten)" in done.stderr
    words = ["--flatten", "--exclude", "/z", "-n", *there.flags("dst")]
    again = command.run("cp", "-r", here, f"{there.url}/to", *words).expect(0)
    assert "3 already there" in again.stderr
    command.run("cp", "--flatten", f"{there.url}/to/**", f"{tmp_path}/back/", *there.flags("src")).expect(0)
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["a", "b", "c"]
    command.run("mv", "-r", "--flatten", here / "x", f"{there.url}/moved", *there.flags("dst")).expect(0)
    assert not list((here / "x").rglob("*.*")) and {"moved/b", "moved/c"} <= set(there.sizes())


@pytest.mark.parametrize("kind", quick("versitygw", "file"))
def test_a_move_keeps_all_sources_if_objects_get_one_name(
    place: Callable[[str], Place], command: Command, tmp_path: Path, kind: str
) -> None:
    there, here = place(kind), tree(tmp_path / "here", "c", "x/b", "z/b")
    for name in ("c", "x/b", "z/b"):  # A copy of the same second could be the file itself.
        os.utime(here / name, (1_000_000_000, 1_000_000_000))
    words = ["mv", "-r", "--flatten", str(here), f"{there.url}/to", *there.flags("dst")]
    assert "no source is deleted, because several objects have one name" in command.run(*words).expect(4).stderr
    # The user's next command must not write z/b over the only copy of x/b.
    command.run(*words).expect(4)
    assert there.get("to/b") == b"x/b" and (here / "x/b").exists() and (here / "c").exists()
    command.run(*words, "--exclude", "/z").expect(0)
    assert [path.name for path in here.rglob("*")] == ["z", "b"]
