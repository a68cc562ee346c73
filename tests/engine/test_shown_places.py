"""Places as job lists show them."""

from pathlib import Path

import pytest

from tradewind.engine.shown_places import shown, shown_sources


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (".", "{here}/"),
        ("./", "{here}/"),
        ("a", "{here}/a"),
        ("./a", "{here}/a"),
        ("a/.", "{here}/a/"),
        ("a/./b/", "{here}/a/b/"),
        ("a//b", "{here}/a//b"),
        (".a/b.", "{here}/.a/b."),
        ("../a", "{here}/../a"),
        ("/.", "/"),
        ("/", "/"),
        ("-", "-"),
        ("s3://b/./a/.", "s3://b/./a/."),
    ],
)
def test_paths_are_absolute_and_without_dots(
    typed: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(typed) == expected.format(here=tmp_path)


def test_several_sources_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_sources(["./a", "b", "c"]) == f"{tmp_path}/a and 2 more sources"
