"""Several sources of one job: the objects that they select, and mistakes that are refused before anything is moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.places import nothing_exists
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.request import Options, resolve
from tradewind.engine.sources import SOURCES_MAX
from tradewind.errors import UsageError
from tradewind.model.job import FilterRule, JobSpec, Member, ObjectFilter, SeveralSelection

TREE = Options(recursive=True)


def job(*sources: str | Path, to: str = "s3://d/", options: Options | None = None) -> JobSpec:
    return resolve(
        [str(source) for source in sources], (to,), options or Options(), local_launch().plan, exists=nothing_exists
    )


def members(made: JobSpec) -> list[tuple[str, str]]:
    assert isinstance(made.selection, SeveralSelection)
    return [(member.key, member.name) for member in made.selection.members]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("logs/1.log", "logs/2.log", "other/3.log", "tree/deep/x", "other/tree/y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "link").symlink_to("logs")
    return tmp_path


def test_files_keep_their_names(files: Path) -> None:
    made = job(files / "logs/1.log", files / "link/2.log", files / "other/3.log", to="s3://d/x/")
    assert made.source.url == f"file://{files}"
    assert members(made) == [("logs/1.log", "1.log"), ("logs/2.log", "2.log"), ("other/3.log", "3.log")]
    assert [target.key for target in made.targets] == ["x/"]
    assert job(files / "logs/1.log", files / "logs/2.log").source.url == f"file://{files}/logs"


def test_directories_go_below_their_own_name(files: Path) -> None:
    made = job(files / "logs", files / "tree/", files / "other/3.log", options=TREE)
    assert members(made) == [("logs/", "logs"), ("tree/", "tree"), ("other/3.log", "3.log")]
    with pytest.raises(UsageError, match="is a directory"):
        job(files / "logs", files / "other/3.log")


def test_objects_of_one_bucket() -> None:
    assert members(job("s3://b/x/1", "s3://b/2")) == [("x/1", "1"), ("2", "2")]
    assert members(job("s3://b/x", "s3://b/y/", options=TREE)) == [("x/", "x"), ("y/", "y")]
    with pytest.raises(UsageError, match="different stores"):
        job("s3://b/x", "s3://c/y")
    with pytest.raises(UsageError, match="is a directory"):
        job("s3://b/x/", "s3://b/y")
    with pytest.raises(UsageError, match="has no name"):
        job("s3://b", "s3://b/y", options=TREE)


def test_two_sources_with_the_same_name_are_refused(files: Path) -> None:
    (files / "other/1.log").write_text("another")
    with pytest.raises(UsageError, match=r"both be called 1\.log"):
        job(files / "logs/1.log", files / "other/1.log")
    with pytest.raises(UsageError, match="both be called tree"):
        job(files / "tree", files / "other/tree", options=TREE)
    with pytest.raises(UsageError, match="both be called 1"):
        job("s3://b/x/1", "s3://b/y/1")


def test_a_source_within_another_is_refused(files: Path) -> None:
    with pytest.raises(UsageError, match="is within"):
        job(files / "tree", files / "tree/deep", options=TREE)


@pytest.mark.parametrize("destination", ["s3://d/x", "dst"])
def test_the_destination_must_end_in_a_slash(files: Path, destination: str) -> None:
    with pytest.raises(UsageError, match=r"several sources .*1\.log, .*2\.log.* need a directory") as caught:
        job(files / "logs/1.log", files / "logs/2.log", to=destination)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("/")


def test_options_for_one_source_refuse_several(files: Path) -> None:
    two = (files / "logs", files / "tree")
    with pytest.raises(UsageError, match="a sync has one"):
        job(*two, options=Options(recursive=True, compare="auto"))
    with pytest.raises(UsageError, match="one source"):
        job(*two, options=Options(recursive=True, files_from="list"))
    with pytest.raises(UsageError, match="filters"):
        only = ObjectFilter((FilterRule("include", "*.log"),))
        job(files / "logs/1.log", files / "logs/2.log", options=Options(filter=only))


def test_too_many_sources_are_refused() -> None:
    with pytest.raises(UsageError, match="the maximum is 10,000"):
        job(*(f"s3://b/{number}" for number in range(SOURCES_MAX + 1)))


def test_the_selection_survives_the_job_file() -> None:
    from tradewind.model.document import to_document
    from tradewind.model.job import JobSpec, SeveralSelection
    from tradewind.model.store import StoreSpec

    job = JobSpec(StoreSpec("s3://b"), SeveralSelection((Member("a/", "a"), Member("b", "b"))), ())
    assert JobSpec.from_document(to_document(job)) == job
