"""Wildcards in places: what is a pattern, its fixed directory, and its glob."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.places import nothing_exists
from tradewind.engine.patterns import is_all, pattern_of
from tradewind.engine.request import Options, resolve
from tradewind.errors import UsageError
from tradewind.model.job import NameGlob, ObjectSelection, PrefixSelection
from tradewind.model.plan import local_plan
from tradewind.model.store import StoreSpec
from tradewind.model.url import Location, parse_url


def store(place: Location) -> StoreSpec:
    return StoreSpec(place.root)


@pytest.mark.parametrize(
    ("url", "folder", "glob"),
    [
        ("s3://b/2024-*/x", "", "2024-*/x"),
        ("s3://b/d/e/*.csv", "d/e/", "*.csv"),
        ("s3://b/d[1]/a?", "", "d[1]/a?"),
        ("az://a/c/d//*", "d//", "*"),
        ("/data/x*/y/", "/data/", "x*/y/"),
    ],
)
def test_a_pattern_has_a_fixed_directory(url: str, folder: str, glob: str) -> None:
    pattern = pattern_of(parse_url(url), store, nothing_exists)
    assert pattern is not None and (pattern.folder.key, pattern.glob) == (folder, glob)


@pytest.mark.parametrize("url", ["s3://b/k", "s3://b/data[1].csv", "s3://b/{a,b}", "s3://b/", "mem:?objects=1"])
def test_other_places_are_no_patterns_and_are_not_looked_up(url: str) -> None:
    def never(_store: StoreSpec, _key: str) -> tuple[bool, bool]:
        raise AssertionError("looked up")

    assert pattern_of(parse_url(url), store, never) is None


def test_a_name_that_exists_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "a*").touch()
    assert pattern_of(parse_url(f"{tmp_path}/a*"), store, nothing_exists) is None
    assert pattern_of(parse_url(f"{tmp_path}/b*"), store, nothing_exists) is not None
    job = resolve("s3://b/a*", ("s3://c/x/",), Options(), local_plan(), exists=lambda *_: (True, False))
    assert job.selection == ObjectSelection("a*") and job.targets[0].key == "x/a*"


def test_a_job_selects_within_the_glob() -> None:
    for options, below in ((Options(), False), (Options(recursive=True), True), (Options(compare="auto"), True)):
        job = resolve("s3://b/d/*.csv", ("s3://c/x/",), options, local_plan(), exists=nothing_exists)
        assert isinstance(job.selection, PrefixSelection)
        assert (job.selection.prefix, job.selection.filter.within) == ("d/", NameGlob("*.csv", below))
        assert job.targets[0].key == "x/"


@pytest.mark.parametrize(
    ("source", "to", "options"),
    [
        ("s3://b/*", "s3://c/x", Options()),
        ("s3://b/*/", "s3://c/x/", Options()),
        ("s3://b/*", "s3://c/x/", Options(files_from="names")),
        ("s3://b/*", "s3://c/x/", Options(recursive=True, as_subdir=True)),
        ("s3://b/d/**", "s3://b/d/x/", Options()),
        ("s3://b/d/*", "s3://b/d/", Options()),
    ],
)
def test_what_a_pattern_cannot_do_is_refused(source: str, to: str, options: Options) -> None:
    with pytest.raises(UsageError):
        resolve(source, (to,), options, local_plan(), exists=nothing_exists)


def test_a_pattern_of_wildcards_alone_is_all() -> None:
    assert all(map(is_all, ("*", "**", "*/*", "?*"))) and not any(map(is_all, ("a*", "*.csv", "[a]*")))
