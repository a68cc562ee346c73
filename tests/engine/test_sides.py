"""Finding the region of a store: which sources may be believed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tradewind.engine import aws_profile, sides
from tradewind.engine.store_places import store_spec
from tradewind.errors import UsageError
from tradewind.model.region import Region
from tradewind.model.store import Access
from tradewind.model.url import parse_url


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")


@pytest.mark.parametrize(
    ("url", "access", "region"),
    [
        ("s3://b/k", Access(region="eu-west-1"), "aws:eu-west-1"),
        ("s3://b/k", Access(), None),
        ("s3://b/k", Access(region="eu-west-1", endpoint="http://127.0.0.1:9000"), None),
        ("s3://b/k", Access(region="aws:eu-west-1", endpoint="http://127.0.0.1:9000"), "aws:eu-west-1"),
        ("s3://b/k", Access(region="eu-west-1", endpoint="https://x.s3.eu-west-1.vpce.amazonaws.com"), "aws:eu-west-1"),
        ("https://bucket.s3.eu-central-1.amazonaws.com/k", Access(), "aws:eu-central-1"),
        ("gs://b/k", Access(region="europe-west4"), "gcp:europe-west4"),
        ("az://account/container/k", Access(region="westeurope"), "azure:westeurope"),
        ("az://account/container/k", Access(), None),
        ("r2://account/b/k", Access(region="auto"), None),
        ("/data", Access(), None),
        ("/data", Access(region="site:lab"), "site:lab"),
    ],
)
def test_regions_known_without_a_request(url: str, access: Access, region: str | None) -> None:
    found = sides.known_region(parse_url(url, cwd="/"), access)
    assert found.region == (None if region is None else Region.parse(region))


@pytest.mark.parametrize(
    ("url", "access", "answer", "region", "because"),
    [
        ("s3://b", Access(), {"provider": "aws", "name": "eu-west-3"}, "aws:eu-west-3", "the store says so"),
        ("gs://b", Access(), {"provider": "gcp", "name": "us-east1"}, "gcp:us-east1", "the store says so"),
        ("s3://b", Access(endpoint="http://h:9000"), {"name": "us-east-1"}, None, "in no known cloud region"),
        ("s3://b", Access(endpoint="https://s3.eu-west-1.amazonaws.com"), {"name": "eu-west-1"}, "aws:eu-west-1", "so"),
        (
            "s3://b",
            Access(),
            {"error": "s3://b: head: forbidden"},
            None,
            "the region of s3://b cannot be determined: s3://b: head",
        ),
    ],
)
def test_only_a_clouds_answer_is_believed(
    monkeypatch: pytest.MonkeyPatch, url: str, access: Access, answer: dict[str, str], region: str | None, because: str
) -> None:
    monkeypatch.setattr(sides, "ask_task", lambda _, task, _around: [answer for _ in task["stores"]])
    (found,) = sides.find_regions([(parse_url(url, cwd="/"), access)], "gateway")
    assert found.region == (None if region is None else Region.parse(region))
    assert because in found.because


def test_a_region_that_the_user_sets_is_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "ask_task", lambda *_: pytest.fail("asked"))
    side = (parse_url("s3://b", cwd="/"), Access(region="aws:eu-west-1"))
    assert sides.find_regions([side, side], "gateway")[0].region == Region("aws", "eu-west-1")


@pytest.mark.parametrize(
    ("url", "region", "signed"),
    [
        ("s3://b/k", "aws:eu-west-1", "eu-west-1"),
        ("s3://b/k", "eu-west-1", "eu-west-1"),
        ("s3://b/k", "gcp:europe-west4", None),
        ("gs://b/k", "gcp:europe-west4", None),
        ("gs://b/k", None, None),
    ],
)
def test_the_store_gets_its_own_name_of_the_region(url: str, region: str | None, signed: str | None) -> None:
    place = parse_url(url, cwd="/")
    assert store_spec(place.root, place, Access(region=region)).region == signed


def test_requests_to_a_compatible_server_are_not_signed_with_its_location() -> None:
    place = parse_url("s3://b/k", cwd="/")
    lab = Access(region="aws:us-east-2", endpoint="http://127.0.0.1:9000")
    assert store_spec(place.root, place, lab).region is None


def test_half_a_region_is_refused() -> None:
    with pytest.raises(UsageError, match="'aws:' is not a region"):
        sides.known_region(parse_url("s3://b/k", cwd="/"), Access(region="aws:"))


def test_given_credentials_are_for_the_cloud_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints in the environment of this machine are not those of a job with its own credentials."""
    monkeypatch.setattr(aws_profile, "s3_endpoint", lambda _: SimpleNamespace(url="http://127.0.0.1:1"))
    place = parse_url("s3://b", cwd="/")
    assert sides.known_region(place, Access(region="eu-west-1", is_given=True)).region == Region("aws", "eu-west-1")
    assert sides.known_region(place, Access(region="eu-west-1")).region is None
