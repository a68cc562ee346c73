import pytest

from tradewind.errors import UrlError
from tradewind.model.url import parse_url


@pytest.mark.parametrize(
    ("text", "root", "key"),
    [
        ("s3://bucket/a/b.txt", "s3://bucket", "a/b.txt"),
        ("s3://bucket", "s3://bucket", ""),
        ("s3://bucket/", "s3://bucket", ""),
        ("S3://bucket/x", "s3://bucket", "x"),
        ("s3://bucket//leading", "s3://bucket", "/leading"),
        ("s3://bucket/a//b", "s3://bucket", "a//b"),
        ("s3://bucket/with space/é%20?#", "s3://bucket", "with space/é%20?#"),
        ("gs://bucket/k", "gs://bucket", "k"),
        ("az://account/container/k/l", "az://account/container", "k/l"),
        ("r2://account/bucket/k", "r2://account/bucket", "k"),
        ("file:///a/b%20c", "file:///", "/a/b c"),
        ("/a/b%20c", "file:///", "/a/b%20c"),
        ("rel/x", "file:///", "/here/rel/x"),
        (".", "file:///", "/here/."),
        ("-", "-", ""),
    ],
)
def test_places(text: str, root: str, key: str) -> None:
    place = parse_url(text, cwd="/here")
    assert (place.root, place.key) == (root, key)


@pytest.mark.parametrize(
    ("text", "root", "key", "region"),
    [
        ("https://bucket.s3.eu-west-1.amazonaws.com/a%20b", "s3://bucket", "a b", "eu-west-1"),
        ("https://my.dotted.bucket.s3.amazonaws.com/k", "s3://my.dotted.bucket", "k", None),
        ("https://s3.us-east-2.amazonaws.com/bucket/k/l", "s3://bucket", "k/l", "us-east-2"),
        ("https://s3-us-west-2.amazonaws.com/bucket/k", "s3://bucket", "k", "us-west-2"),
        ("https://bucket.s3.dualstack.eu-west-1.amazonaws.com/k", "s3://bucket", "k", "eu-west-1"),
        ("https://s3.amazonaws.com/bucket/k?versionId=7", "s3://bucket", "k", None),
        ("https://storage.googleapis.com/bucket/k", "gs://bucket", "k", None),
        ("https://storage.cloud.google.com/bucket/k", "gs://bucket", "k", None),
        ("https://bucket.storage.googleapis.com/k", "gs://bucket", "k", None),
        ("https://account.blob.core.windows.net/container/k", "az://account/container", "k", None),
        (f"https://{'0a' * 16}.r2.cloudflarestorage.com/bucket/k", f"r2://{'0a' * 16}/bucket", "k", None),
    ],
)
def test_pasted_addresses(text: str, root: str, key: str, region: str | None) -> None:
    place = parse_url(text)
    assert (place.root, place.key, place.region) == (root, key, region)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://",
        "s3:///key",
        "az://account",
        "gcs://bucket/k",
        "ftp://host/x",
        "file://otherhost/x",
        "https://example.com/bucket/k",
        "https://s3.amazonaws.com/",
        "a\0b",
    ],
)
def test_invalid_urls_are_refused(text: str) -> None:
    with pytest.raises(UrlError):
        parse_url(text, cwd="/")


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAKEY:hunter2@bucket/k",
        "https://user:hunter2@storage.googleapis.com/b/k",
        "https://account.blob.core.windows.net/c/k?sv=2022&sig=hunter2",
        "https://account.blob.core.windows.net/c/k?sv=2022&%73ig=hunter2",
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=hunter2",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UrlError) as caught:
        parse_url(text)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "is_directory", "name"),
    [
        ("s3://b", True, ""),
        ("s3://b/x/", True, "x"),
        ("s3://b/x", False, "x"),
        ("/tmp/.", True, "."),
        ("/tmp/..", True, ".."),
        ("/tmp/x/", True, "x"),
        ("/tmp/x", False, "x"),
    ],
)
def test_directories_and_names(text: str, is_directory: bool, name: str) -> None:
    place = parse_url(text)
    assert (place.is_directory, place.name) == (is_directory, name)


def test_memory_options() -> None:
    assert parse_url("mem:?objects=10&size_bytes=5").options == {"objects": "10", "size_bytes": "5"}
    with pytest.raises(UrlError):
        parse_url("mem:?objects")


@pytest.mark.parametrize(
    ("text", "lists"), [("s3://b*/x", "s3://"), ("gs://b?", "gs://"), ("az://account/c*/x", "az://account/")]
)
def test_wildcards_in_the_name_of_a_bucket_are_refused(text: str, lists: str) -> None:
    with pytest.raises(UrlError, match="wildcards match keys, not buckets") as refused:
        parse_url(text)
    assert refused.value.hint == f"name one bucket; `tradewind ls {lists}` lists them"
