from pathlib import Path

import pytest

from testbed.places import nothing_exists
from tradewind.engine.request import Options, resolve
from tradewind.errors import UsageError
from tradewind.model.job import JobSpec, ListSelection, ObjectSelection, PrefixSelection
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.model.store import Access

TREE = Options(recursive=True)


def job(source: str, *destinations: str, options: Options | None = None, plan: Plan | None = None) -> JobSpec:
    return resolve(source, destinations, options or Options(), plan or local_plan(), exists=nothing_exists)


@pytest.mark.parametrize(
    ("destination", "key"),
    [
        ("s3://d/x/", "x/name.txt"),
        ("s3://d/x", "x"),
        ("s3://d", "name.txt"),
        ("s3://d/", "name.txt"),
        ("s3://d/a//", "a//name.txt"),
    ],
)
def test_one_object_to_a_destination_with_a_slash_keeps_its_name(destination: str, key: str) -> None:
    made = job("s3://s/dir/name.txt", destination)
    assert made.selection == ObjectSelection("dir/name.txt")
    assert made.targets[0].key == key


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_tree_copies_its_contents_with_and_without_slashes(slash: str, end: str) -> None:
    made = job(f"s3://s/te{slash}", f"gs://d/x{end}", options=TREE)
    assert made.selection == PrefixSelection("te/")
    assert made.targets[0].key == "x/"


def test_as_subdir_adds_the_name() -> None:
    options = Options(recursive=True, as_subdir=True)
    assert job("s3://s/a/te", "gs://d/x", options=options).targets[0].key == "x/te/"
    assert job("s3://bucket", "gs://d", options=options).targets[0].key == "bucket/"
    with pytest.raises(UsageError):
        job("s3://s/a", "s3://d/b", options=Options(as_subdir=True))


def test_nothing_depends_on_whether_the_destination_exists(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    before = job("s3://s/k", f"{tmp_path}/new/")
    after = job("s3://s/k", f"{tmp_path}/there/")
    assert (before.targets[0].key, after.targets[0].key) == ("k", "k")
    with pytest.raises(UsageError, match="is a directory"):
        job("s3://s/k", f"{tmp_path}/there")


def test_local_files_have_their_folder_as_store(tmp_path: Path) -> None:
    (tmp_path / "a b%").mkdir()
    file = tmp_path / "a b%" / "f.txt"
    file.write_text("x")
    made = job(str(file), "s3://d/")
    assert made.source.url == f"file://{tmp_path}/a b%"
    assert made.selection == ObjectSelection("f.txt")
    assert made.targets[0].key == "f.txt"


def test_a_local_directory_needs_r_and_a_file_permits_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(UsageError) as caught:
        job(str(tmp_path), "s3://d/")
    assert caught.value.hint is not None
    assert "-r" in caught.value.hint
    assert job(str(tmp_path / "f"), "s3://d/", options=TREE).selection == ObjectSelection("f")
    with pytest.raises(UsageError, match="is a file"):
        job(str(tmp_path / "f"), "s3://d/", options=Options(recursive=True, compare="auto"))


def test_a_bucket_needs_r() -> None:
    with pytest.raises(UsageError, match="is a directory"):
        job("s3://s/dir/", "s3://d/")


def test_files_from_names_the_keys(tmp_path: Path) -> None:
    made = job("s3://s/p", "s3://d", options=Options(files_from=str(tmp_path / "list")))
    assert made.selection == ListSelection("p/", str(tmp_path / "list"))


@pytest.mark.parametrize(
    ("source", "destination", "recursive"),
    [
        ("s3://b/a", "s3://b/a", False),
        ("s3://b/x/a", "s3://b/x/", False),
        ("s3://b/a", "s3://b/a/", True),
        ("s3://b/a", "s3://b/a/inner", True),
        ("s3://b", "s3://b/copy", True),
        ("s3://b/a/inner", "s3://b/a", True),
        ("s3://b/a", "s3://b", True),
    ],
)
def test_a_source_is_never_copied_onto_or_into_itself(source: str, destination: str, recursive: bool) -> None:
    with pytest.raises(UsageError, match=r"same|overlap"):
        job(source, destination, options=Options(recursive=recursive, delete_source=True))


def test_a_list_may_be_copied_but_not_moved_below_its_source() -> None:
    job("s3://b", "s3://b/copy", options=Options(files_from="list"))
    with pytest.raises(UsageError, match="overlap"):
        job("s3://b", "s3://b/copy", options=Options(files_from="list", delete_source=True))
    with pytest.raises(UsageError, match="overlap"):
        job("s3://b/copy", "s3://b", options=Options(files_from="list"))


def test_other_names_and_other_endpoints_do_not_overlap() -> None:
    job("s3://b/ab", "s3://b/a", options=TREE)
    job("s3://b/a", "s3://b/ab", options=TREE)
    job("s3://b/a", "s3://b/a", options=Options(recursive=True, destination=Access(endpoint="http://127.0.0.1:1")))


def test_local_overlap_is_detected_through_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_text("x")
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(UsageError, match="same"):
        job(f"{tmp_path}/real/f", f"{tmp_path}/link/f")
    with pytest.raises(UsageError, match="same"):
        job(f"{tmp_path}/real", f"{tmp_path}/link", options=TREE)
    with pytest.raises(UsageError, match="overlap"):
        job(f"{tmp_path}/real", f"{tmp_path}/link/below", options=TREE)
    with pytest.raises(UsageError, match="overlap"):
        job(f"{tmp_path}/link/below", f"{tmp_path}/real", options=TREE)


def test_each_side_has_its_own_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[one]\n[two]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = Options(
        source=Access(endpoint="http://127.0.0.1:1", profile="one"),
        destination=Access(region="eu-west-1", profile="two"),
    )
    made = job("s3://s/k", "s3://d/k", options=options)
    assert (made.source.endpoint, made.source.profile, made.source.region) == ("http://127.0.0.1:1", "one", None)
    target = made.targets[0].store
    assert (target.endpoint, target.profile, target.region) == (None, "two", "eu-west-1")


def test_an_endpoint_has_no_effect_on_files(tmp_path: Path) -> None:
    made = job(str(tmp_path), "s3://d", options=Options(recursive=True, source=Access(endpoint="http://127.0.0.1:1")))
    assert made.source.endpoint is None


def test_several_destinations_are_refused_for_pipes() -> None:
    assert [target.key for target in job("s3://s/k", "s3://a/", "gs://b/x").targets] == ["k", "x"]
    with pytest.raises(UsageError):
        job("-", "s3://b/k")
    with pytest.raises(UsageError):
        job("s3://b/k", *["s3://d/k"] * 17)


@pytest.mark.parametrize(
    "options",
    [
        Options(recursive=True, delete=True),
        Options(recursive=True, compare="auto", max_delete=3),
        Options(chunk_bytes=1 << 20),
        Options(max_cost_usd=1.0),
    ],
)
def test_invalid_options_are_refused(options: Options) -> None:
    with pytest.raises(UsageError):
        job("s3://s/k", "s3://d/k", options=options)


def priced_plan() -> Plan:
    gateways = tuple(PlannedGateway(name) for name in ("lead", "a", "r", "b"))
    hops = (PlannedHop("a", "b", 1), PlannedHop("a", "r", 1), PlannedHop("r", "b", 1))
    return Plan(gateways, hops, (PlannedRoute(("a", "b"), 0.5, 0.02), PlannedRoute(("a", "r", "b"), 0.5, 0.06)))


def test_a_ceiling_in_usd_bounds_price_times_bytes() -> None:
    made = job("s3://s/k", "s3://d/k", options=Options(max_cost_usd=2.0), plan=priced_plan())
    assert made.ceiling_usd_per_gb == pytest.approx(0.04)
    assert made.ceiling_usd == 2.0
    assert made.ceiling_bytes is None, "the lead itself enforces the ceiling in USD"
    made = job("s3://s/k", "s3://d/k", options=Options(max_usd_per_gb=0.03, max_bytes=7), plan=priced_plan())
    assert (made.ceiling_usd_per_gb, made.ceiling_usd, made.ceiling_bytes) == (0.03, None, 7)


def test_moving_a_link_to_a_folder_needs_a_slash(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file-link").symlink_to("real/file")
    move, link = Options(recursive=True, delete_source=True), f"{tmp_path}/link"
    for sources in (link, [link, f"{tmp_path}/real/file"]):
        with pytest.raises(UsageError, match="symbolic link") as refused:
            resolve(sources, ("s3://d/x/",), move, local_plan(), exists=nothing_exists)
        assert "link/" in (refused.value.hint or "")
    assert job(f"{link}/", "s3://d/x", options=move).delete_source
    assert not job(link, "s3://d/x", options=TREE).delete_source
    assert job(f"{tmp_path}/file-link", "s3://d/x", options=Options(delete_source=True)).delete_source
