"""Names of places: one for each real place, also if it has two addresses."""

import pytest

from tradewind.service.stores import real_place, store_and_path, stores_of

ACCOUNT = "0" * 32


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")


@pytest.mark.parametrize(
    ("url", "endpoint", "name"),
    [
        ("s3://b/k", "http://127.0.0.1:9000", "s3://b/k"),
        ("s3://b/k", "http://localhost:9000", "s3://b/k"),
        ("s3://b/k/", "http://127.0.0.1:9001", "s3://localhost:9001/b/k/"),
        ("s3://b/k", "https://s3.example.org", "s3://s3.example.org:443/b/k"),
        ("s3://b/k", "https://s3.example.org:443", "s3://s3.example.org:443/b/k"),
        ("s3://b", None, "s3://s3.amazonaws.com:443/b"),
        ("s3://b", "https://s3.eu-west-1.amazonaws.com", "s3://s3.amazonaws.com:443/b"),
        (f"r2://{ACCOUNT}/b/k", None, f"r2://{ACCOUNT}/b/k"),
        ("s3://b/k", f"https://{ACCOUNT}.r2.cloudflarestorage.com", f"r2://{ACCOUNT}/b/k"),
        ("s3://b/k", "https://storage.googleapis.com", "gs://b/k"),
        ("az://account/c/k", None, "az://account/c/k"),
        ("az://account/c/k", "http://[fd00::1]:10000", "az://[fd00::1]:10000/account/c/k"),
        ("/data/a:b", None, "/data/a:b"),
        ("s3://b//a///k/", "http://127.0.0.1:9001", "s3://localhost:9001/b/a/k/"),
        ("s3://b/a//k", "http://127.0.0.1:9000", "s3://b/a/k"),
    ],
)
def test_a_connection_to_the_servers_own_store_has_its_name(url: str, endpoint: str | None, name: str) -> None:
    assert real_place(url, endpoint, is_connected=True) == name


def test_a_place_without_connection_keeps_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://b/k", "gs://b/k", f"r2://{ACCOUNT}/b/k", "az://account/c", "/data"):
        assert real_place(url, None, is_connected=False) == url
    assert real_place("s3://b//a//k", None, is_connected=False) == "s3://b/a/k"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://{ACCOUNT}.r2.cloudflarestorage.com")
    assert real_place(f"r2://{ACCOUNT}/b/k", None, is_connected=False) == "s3://b/k"


def test_a_name_has_its_store_and_path() -> None:
    assert store_and_path("s3://localhost:9001/b/k/:/") == ("s3://localhost:9001/b", "k/:")
    assert store_and_path("az://h:1/account/c") == ("az://h:1/account/c", "")
    assert store_and_path("s3://b/a:b") == ("s3://b", "a:b")
    assert store_and_path("/data/s3:/h:1/b") == ("local", "data/s3:/h:1/b")
    named = {"source": "x", "destination": ["x"], "endpoints": {}, "stores": ["s3://h:1/b", "local", "local"]}
    assert stores_of({"connections": named}) == ("s3://h:1/b", ("local",))
