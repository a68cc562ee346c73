"""Places that jobs may use and own: names that hide others, patterns, and the server's own folder."""

from pathlib import Path

import pytest

from tradewind.errors import UsageError
from tradewind.model.records import replace
from tradewind.service.places import allowed_place, conflict, owned_places, require_same_places
from tradewind.service.settings import ServiceSettings
from tradewind.service.sites import parse_sites, tenant_place


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
        allowed_place(f"file://{settings.allow_paths[0]}/{name}", settings, "lab")


@pytest.mark.parametrize(
    "name",
    ["state", "state/admin.token", "*", "st*/admin.token", "?tate/*", "[a-s]tate/x?", ".", "", "**", "a/b*/../../s*/x"],
)
def test_the_state_folder_is_never_reached(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"{settings.allow_paths[0]}/{name}", settings, "lab")


@pytest.mark.parametrize("name", ["keys/service.key", "keys", "keys/*", "k*/service.key", "linked", ""])
def test_the_key_file_is_never_reached(settings: ServiceSettings, tmp_path: Path, name: str) -> None:
    """With it, a reader could open the secrets of all tenants in a copy of the database."""
    data = tmp_path / "data"
    (data / "state").rmdir()
    (data / "keys").mkdir()
    (data / "keys" / "service.key").touch()
    (data / "linked").symlink_to("keys/service.key")
    guarded = replace(settings, state=tmp_path / "state", key_file=str(data / "linked"))
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"{data}/{name}", guarded, "lab")
    assert allowed_place(f"{data}/a", guarded, "lab") == f"{data}/a"


@pytest.mark.parametrize("name", ["../outside/*", "link/*", "a/../../outside", "%2e%2e/outside", "*/../../outside/*"])
def test_what_leads_out_of_the_allowed_folder(settings: ServiceSettings, name: str) -> None:
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"file://{settings.allow_paths[0]}/{name}", settings, "lab")


@pytest.mark.parametrize(
    "key", ["shared-evil/x", "share", "shared/../x", "shared/../../other/x", "shared/./x", "shared/..", "shared*", ""]
)
def test_keys_beyond_the_allowed_prefix(settings: ServiceSettings, key: str) -> None:
    with pytest.raises(UsageError):
        allowed_place(f"s3://bucket/{key}", settings, "lab")


@pytest.fixture
def by_tenant(tmp_path: Path) -> ServiceSettings:
    """Return settings with a folder and a prefix of each tenant, and a shared folder."""
    for name in ("data/lab/in", "data/labour", "data/other", "public", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / "lab" / "link").symlink_to(tmp_path / "data" / "other")
    (tmp_path / "data" / "tied").symlink_to(tmp_path / "data" / "other")
    paths = str(tmp_path / "data" / "{tenant}"), str(tmp_path / "public")
    return ServiceSettings(tmp_path / "state", allow_paths=paths, allow_stores=("s3://bucket/of/{tenant}/",))


def test_a_tenant_uses_its_own_part_of_a_place(by_tenant: ServiceSettings, tmp_path: Path) -> None:
    for place in (f"{tmp_path}/data/lab/in/x", f"{tmp_path}/data/lab", f"{tmp_path}/public/x", "s3://bucket/of/lab/x"):
        assert allowed_place(place, by_tenant, "lab") == place


@pytest.mark.parametrize(
    "place",
    [
        *("DATA/other/x", "DATA/labour/x", "DATA", "DATA/*/x", "DATA/l*/in", "DATA/{tenant}/x", "DATA/lab/../other/x"),
        *("DATA/lab/link/x", "DATA/lab%2F..%2Fother", "s3://bucket/of/other/x", "s3://bucket/of/", "s3://bucket/of/l*"),
        *("s3://bucket/of/labour/x", "s3://bucket/of/lab/../other/x", "s3://bucket/of/{tenant}/x"),
    ],
)
def test_a_tenant_never_reaches_the_part_of_another(by_tenant: ServiceSettings, tmp_path: Path, place: str) -> None:
    text = place.replace("DATA", f"file://{tmp_path}/data")
    with pytest.raises(UsageError, match=r"allowed|part"):
        allowed_place(text, by_tenant, "lab")


def test_a_folder_of_a_tenant_that_is_a_link_is_not_followed(by_tenant: ServiceSettings, tmp_path: Path) -> None:
    """The link could lead to the folder of another tenant."""
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"{tmp_path}/data/tied/x", by_tenant, "tied")


def test_a_place_of_another_tenant_is_not_allowed_again_later(by_tenant: ServiceSettings, tmp_path: Path) -> None:
    request = {"source": f"{tmp_path}/data/lab/in", "destination": [f"{tmp_path}/public/in"]}
    require_same_places(request, by_tenant, "lab")
    with pytest.raises(UsageError, match="not below an allowed folder"):
        require_same_places(request, by_tenant, "other")


def test_a_site_may_be_in_the_parts_of_tenants(by_tenant: ServiceSettings, tmp_path: Path) -> None:
    data = tmp_path / "data"
    sites = parse_sites([f"one={data}", f"two={data}/{{tenant}}/two", "three=s3://bucket/of/"], by_tenant)
    assert [tenant_place(sites, name, "lab") for name in sites] == [
        f"{data}/lab",
        f"{data}/lab/two",
        "s3://bucket/of/lab",
    ]
    with pytest.raises(UsageError, match="not below an allowed folder"):
        parse_sites([f"up={tmp_path}"], by_tenant)


def test_a_pattern_in_an_allowed_folder(settings: ServiceSettings) -> None:
    place = f"{settings.allow_paths[0]}/a/*"
    assert allowed_place(place, settings, "lab") == place
    assert allowed_place("s3://bucket/shared/*.gz", settings, "lab") == "s3://bucket/shared/*.gz"


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
