from pathlib import Path

import pytest

from tradewind.engine.aws_profile import refuse_unknown_profile, s3_endpoint
from tradewind.engine.store_places import directory_place
from tradewind.errors import UsageError
from tradewind.model.store import Access
from tradewind.model.url import parse_url

CONFIG = """\
# of AWS's own tools
[default]
region = us-west-2
endpoint_url = http://default.example:1
[profile "lab"]
services = lab-services   # a comment
endpoint_url = http://all.example:2
region = lab-1
[profile plain]
endpoint_url = http://plain.example:3
[profile off]
endpoint_url = http://off.example:4
ignore_configured_endpoint_urls = true
[services lab-services]
dynamodb =
  endpoint_url = http://tables.example:5
s3 =
  endpoint_url = http://objects.example:6
  addressing_style = path
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))


def url(profile: str | None = None) -> str | None:
    found = s3_endpoint(profile)
    return None if found is None else found.url


def test_each_source_of_an_endpoint_overrides_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert url() == "http://default.example:1"
    assert url("plain") == "http://plain.example:3"
    assert url("lab") == "http://objects.example:6"
    monkeypatch.setenv("AWS_PROFILE", "plain")
    assert url() == "http://plain.example:3"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://variable.example")
    assert url("lab") == "http://variable.example"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3.example")
    assert url("lab") == "http://s3.example"


def test_an_endpoint_has_its_place_and_region() -> None:
    found = s3_endpoint("lab")
    assert found is not None
    assert found.region == "lab-1"
    assert found.place.endswith("config [services lab-services]")


def test_endpoints_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert url("off") is None
    assert url("none") is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://variable.example")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert url() is None


def test_an_invalid_file_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "gone"))
    assert url() is None
    (tmp_path / "bytes").write_bytes(b"\xff\x00[[[\n=\n= x\n[")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "bytes"))
    assert url() is None


def test_the_endpoint_is_used_unless_the_user_sets_another() -> None:
    def endpoint(text: str, access: Access) -> tuple[str | None, str | None]:
        store, _ = directory_place(parse_url(text, cwd="/"), access)
        return store.endpoint, store.region

    assert endpoint("s3://b", Access(profile="lab")) == ("http://objects.example:6", "lab-1")
    assert endpoint("s3://b", Access(profile="lab", region="r")) == ("http://objects.example:6", "r")
    assert endpoint("s3://b", Access(endpoint="http://given")) == ("http://given", None)
    assert endpoint("gs://b", Access()) == (None, None)


def test_a_profile_that_neither_file_has_is_refused_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("[keys]\naws_access_key_id = a\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    for known in ("default", "lab", "plain", "keys"):
        refuse_unknown_profile(known)
    for unknown, hint in (
        ("plane", "did you mean plain?"),
        ("zzz", "these profiles exist: default, lab, plain, off, keys"),
    ):
        with pytest.raises(UsageError, match=f"no AWS profile {unknown} in ") as refused:
            directory_place(parse_url("s3://b/x"), Access(profile=unknown))
        assert refused.value.hint == hint


def test_without_any_file_of_aws_the_hint_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none-either"))
    with pytest.raises(UsageError) as refused:
        refuse_unknown_profile("lab")
    assert refused.value.hint == "run `aws configure`"


def test_a_missing_profile_of_the_environment_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    place = parse_url("s3://bucket", cwd="/")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_PROFILE", "plian")
    with pytest.raises(UsageError, match=r"no AWS profile plian \(AWS_PROFILE\) in .*config") as refused:
        directory_place(place, Access())
    assert refused.value.hint == "did you mean plain?"
    directory_place(place, Access(anonymous=True))
    monkeypatch.setenv("AWS_PROFILE", "default")
    directory_place(place, Access())
    monkeypatch.setenv("AWS_PROFILE", "nope")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    directory_place(place, Access())
