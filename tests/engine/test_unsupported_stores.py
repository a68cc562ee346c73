"""Forms of S3 that are refused by name before anything moves, and those that work in another form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.engine.store_places import store_spec
from tradewind.errors import UrlError, UsageError
from tradewind.model.store import Access
from tradewind.model.url import parse_url


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "config"
    made.write_text("[profile fips]\nuse_fips_endpoint = true\n[profile dual]\nuse_dualstack_endpoint = TRUE\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(made))
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_USE_FIPS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_USE_DUALSTACK_ENDPOINT", raising=False)
    return made


def open_store(url: str, access: Access) -> str | None:
    """Return the endpoint of the store."""
    place = parse_url(url, cwd="/")
    return store_spec(place.root, place, access).endpoint


@pytest.mark.parametrize(
    ("url", "access", "words"),
    [
        ("s3://data--use1-az4--x-s3/k", Access(), "directory buckets (S3 Express One Zone) are not supported"),
        ("s3://data--use1-az4--x-s3/k", Access(is_given=True), "directory buckets"),
        ("s3://mfzwi23gnjvgw.mrap/k", Access(), "multi-region access points are not supported"),
        ("gs://b/k", Access(requester_pays=True), "requester pays is supported only at S3"),
        ("s3://b/k", Access(profile="fips"), "use_fips_endpoint is set"),
        ("s3://b/k", Access(profile="dual"), "use_dualstack_endpoint is set"),
    ],
)
def test_unsupported_forms_are_refused_by_name(url: str, access: Access, words: str) -> None:
    with pytest.raises(UsageError, match=r"(s3|gs)://") as refused:
        open_store(url, access)
    assert words in str(refused.value) and refused.value.hint


@pytest.mark.parametrize("name", ["AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"])
def test_variables_for_other_addresses_are_refused_unless_one_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "true")
    with pytest.raises(UsageError, match=f"{name} is set"):
        open_store("s3://b/k", Access())
    named = "https://s3-fips.us-east-1.amazonaws.com"
    assert open_store("s3://b/k", Access(named)) == named
    assert open_store("s3://b/k", Access(is_given=True)) is None, "jobs with given credentials have no configuration"
    assert open_store("gs://b/k", Access()) is None
    monkeypatch.setenv(name, "false")
    assert open_store("s3://b/k", Access(profile="fips" if "FIPS" in name else "dual")) is None


def test_the_arn_of_an_access_point_is_refused_and_its_alias_works() -> None:
    with pytest.raises(UrlError, match="ARN of an access point") as refused:
        parse_url("s3://arn:aws:s3:us-west-2:123456789012:accesspoint/ap/k", cwd="/")
    assert "-s3alias" in (refused.value.hint or "")
    assert open_store("s3://ap-abc123-s3alias/k", Access()) is None
