"""Places that jobs may use and own: names that hide others, patterns, and the server's own folder."""

from pathlib import Path

import pytest

from tradewind.errors import UsageError
from tradewind.service.places import allowed_place, conflict, owned_places
from tradewind.service.settings import ServiceSettings


@pytest.fixture
def settings(tmp_path: Path) -> ServiceSettings:
    for name in ("data/state", "data/a", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    return ServiceSettings(
        tmp_path / "data" / "state", allow_paths=(str(tmp_path / "data"),), allow_stores=("s3://bucket/shared",)
    )


@pytest.mark.parametrize("name", ["a%00b", "a%ff", "a%0ab", "a%1b[2J"])
def test_names_that_no_document_can_have(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        allowed_place(f"file://{settings.allow_paths[0]}/{name}", settings)


@pytest.mark.parametrize(
    "name",
    ["state", "state/admin.token", "*", "st*/admin.token", "?tate/*", "[a-s]tate/x?", ".", "", "**", "a/b*/../../s*/x"],
)
def test_the_state_folder_is_never_reached(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"{settings.allow_paths[0]}/{name}", settings)


@pytest.mark.parametrize("name", ["../outside/*", "link/*", "a/../../outside", "%2e%2e/outside", "*/../../outside/*"])
def test_what_leads_out_of_the_allowed_folder(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"file://{settings.allow_paths[0]}/{name}", settings)


@pytest.mark.parametrize(
    "key", ["shared-evil/x", "share", "shared/../x", "shared/../../other/x", "shared/./x", "shared/..", "shared*", ""]
)
def test_keys_beyond_the_allowed_prefix(settings: ServiceSettings, key: str) -> None:
    with pytest.raises(UsageError):
        allowed_place(f"s3://bucket/{key}", settings)


def test_a_pattern_in_an_allowed_folder(settings: ServiceSettings) -> None:
    place = f"{settings.allow_paths[0]}/a/*"
    assert allowed_place(place, settings) == place
    assert allowed_place("s3://bucket/shared/*.gz", settings) == "s3://bucket/shared/*.gz"


def test_a_job_with_a_pattern_owns_what_it_may_match() -> None:
    owned = owned_places(["/data/a/*.gz"], ["/data/b/"], recursive=False, with_sources=True)
    assert owned == ["/data/a", "/data/b"]
    assert conflict(["/data/a/one.gz"], owned) == "/data/a/one.gz"
    assert owned_places(["/data/a/x"], ["/data/b/"], recursive=False, with_sources=True) == ["/data/a/x", "/data/b/x"]


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("root", ["/data", "s3://bucket"])
def test_a_move_of_a_pattern_excludes_all_jobs_that_write_what_it_may_match(root: str, recursive: bool) -> None:
    moves = owned_places([f"{root}/in*/*.csv"], [f"{root}/to/"], recursive=recursive, with_sources=True)
    copy = owned_places([f"{root}/in*/*.csv"], [f"{root}/to/"], recursive=recursive, with_sources=False)
    for other in (f"{root}/in2", f"{root}/in2/1.csv", f"{root}/to/in2/1.csv", f"{root}/to"):
        assert conflict(moves, [other])
    assert conflict(copy, [f"{root}/to/in2/1.csv"])
    assert not conflict(copy, [f"{root}/in2"])
