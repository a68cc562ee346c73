"""Attributes that a destination cannot hold are refused before anything moves."""

from __future__ import annotations

import os

import pytest

from tradewind.cli.attributes import parse_preserve
from tradewind.engine.attributes import checked, checked_class, checked_preserve, treatment_of_tags
from tradewind.errors import UsageError
from tradewind.model.job import AttributeRules, Preserve
from tradewind.model.url import Kind, parse_url


@pytest.mark.parametrize(
    ("rules", "kinds", "message"),
    [
        (AttributeRules(content_type="html"), ["s3"], "not TYPE/SUBTYPE"),
        (AttributeRules(content_type="text/html\r\nx: y"), ["s3"], "not TYPE/SUBTYPE"),
        (AttributeRules(cache_control=""), ["s3"], "not printable"),
        (AttributeRules(metadata={"a b": "1"}), ["s3"], "not the name of a header"),
        (AttributeRules(metadata={"a-b": "1"}), ["s3", "az"], "Azure does not accept"),
        (AttributeRules(metadata={"a": "é"}), ["gs"], "not printable ASCII"),
        (AttributeRules(metadata={"a": "1", "A": "2"}), ["s3"], "set twice"),
        (AttributeRules(metadata={"a": "x" * 2048}), ["gs", "s3"], "at most 2,048"),
        (AttributeRules(content_type="a/b"), ["file"], "files have none"),
    ],
)
def test_what_a_destination_cannot_hold_is_refused(rules: AttributeRules, kinds: list[Kind], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked(rules, kinds)


def test_a_storage_class_for_files_alone_is_refused() -> None:
    assert checked_class("STANDARD_IA", ["file", "s3"]) == "STANDARD_IA"
    assert checked_class(None, ["file"]) is None
    with pytest.raises(UsageError, match="files have none"):
        checked_class("STANDARD_IA", ["file"])


def test_names_are_compared_in_lower_case() -> None:
    rules = AttributeRules(content_type="text/html; charset=utf-8", metadata={"Team-Name": "a b"})
    assert checked(rules, ["s3", "file"]).metadata == {"team-name": "a b"}
    assert checked(AttributeRules(), ["file"]) == AttributeRules()


def test_tags_are_kept_unless_they_are_replaced() -> None:
    bucket, folder = parse_url("s3://b/a"), parse_url("/d")
    assert treatment_of_tags(None, {}, bucket, [folder]) == "auto"
    assert treatment_of_tags(None, {"a": "1"}, bucket, [bucket]) == "drop"
    assert treatment_of_tags("keep", {"a": "1"}, bucket, [parse_url("az://x/c/a")]) == "keep"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("gs://b/a", "Google Cloud Storage does not keep tags of objects: gs://b/a"),
        ("r2://account/b/a", "R2 does not keep tags of objects: r2://account/b/a"),
        ("/d/a", "a file system does not keep tags of objects: /d/a"),
    ],
)
def test_a_store_without_tags_cannot_keep_them(place: str, message: str) -> None:
    bucket, other = parse_url("s3://b/a"), parse_url(place)
    for source, destinations in ((other, [bucket]), (bucket, [bucket, other])):
        with pytest.raises(UsageError, match=message):
            treatment_of_tags("keep", {}, source, destinations)


def test_only_root_keeps_the_owner_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, folder = parse_url("s3://b/a"), parse_url("/d/a")
    owner = Preserve(owner=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert checked_preserve(owner, AttributeRules(), [bucket, folder]) == owner
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert checked_preserve(owner, AttributeRules(), [bucket]) == owner
    with pytest.raises(UsageError, match="only root can give files to other users: /d/a"):
        checked_preserve(owner, AttributeRules(), [bucket, folder])
    with pytest.raises(UsageError, match="--preserve mode and --metadata-directive replace"):
        checked_preserve(Preserve(mode=True), AttributeRules("replace"), [bucket])
    assert checked_preserve(Preserve(), AttributeRules("replace"), [bucket]) == Preserve()


def test_the_list_names_what_is_kept() -> None:
    assert parse_preserve("time") == Preserve()
    assert parse_preserve("mode,owner") == Preserve(mode=True, owner=True, time=False)
    for wrong in ("", "mode,", "all", "mode owner"):
        with pytest.raises(UsageError, match="is not one of mode, owner, time"):
            parse_preserve(wrong)
