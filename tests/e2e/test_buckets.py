"""Buckets on real servers: ls of an account, mb, rb."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import Place
from tradewind.cli.main import main
from tradewind.engine.buckets import PROJECT_VARIABLES

SLOW = ["versitygw", "moto", "azure"]
"""Kinds of stores of the slow tests."""
KINDS = ["gcs", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
PROJECT = ["--project", "my-project"]


def account_of(place: Place) -> str:
    return place.url.rpartition("/")[0] if place.url.startswith("az://") else place.url.partition("://")[0] + "://"


def root(account: str) -> str:
    return account if account.endswith("/") else f"{account}/"


def project(place: Place) -> list[str]:
    return PROJECT if place.url.startswith("gs://") else []


@pytest.mark.parametrize("kind", KINDS)
def test_ls_of_an_account_lists_its_buckets(place: Callable[[str], Place], command: Command, kind: str) -> None:
    first, second = place(kind), place(kind)
    account, names = account_of(first), {each.url.rpartition("/")[2] for each in (first, second)}
    access = [*first.flags("src"), *project(first)]
    assert names <= set(command.run("ls", account, *access).expect(0).stdout.split())
    lines = [json.loads(line) for line in command.run("ls", "--json", account, *access).expect(0).stdout.splitlines()]
    assert {first.url, second.url} <= {line["url"] for line in lines}
    assert all(line["created"].startswith("20") for line in lines)
    long = command.run("ls", "-l", account, *access).expect(0).stdout
    assert lines[0]["created"] in long


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_is_made_used_and_removed_only_when_empty(
    place: Callable[[str], Place], command: Command, kind: str
) -> None:
    there = place(kind)
    access = there.flags("src")
    url = f"{root(account_of(there))}made-{secrets.token_hex(6)}"
    assert command.run("mb", url, *access, *project(there)).expect(0).stdout == f"made {url}\n"
    assert command.run("ls", url, *access).expect(0).stdout == ""
    assert command.run("du", url, *access).expect(0).stdout == f"0\t0\t{url}/\n"
    command.run("ls", f"{url}/missing", *access).expect(3)
    command.run("cp", "-", f"{url}/d/x", *there.flags("dst"), stdin=b"content").expect(0)
    unconfirmed = command.run("rb", "--force", url, *access).expect(2)
    assert "with all its objects" in unconfirmed.stderr and "hint: confirm with -y" in unconfirmed.stderr
    kept = command.run("rb", "-y", url, *access).expect(1)
    assert "is not empty" in kept.stderr and "hint: --force deletes its objects first" in kept.stderr
    assert command.run("cat", f"{url}/d/x", *access).expect(0).stdout == "content"
    removed = command.run("rb", "-y", "--force", url, *access).expect(0)
    assert removed.stdout == f"deleted {url}/d/x\nremoved {url}\n"
    command.run("rb", "-y", url, *access).expect(3)


def test_mb_and_rb_print_json(place: Callable[[str], Place], command: Command) -> None:
    there = place("gcs")
    access, url = there.flags("src"), f"{root(account_of(there))}made-{secrets.token_hex(6)}"
    made = command.run("mb", "--json", url, *access, *project(there)).expect(0)
    assert json.loads(made.stdout) == {"url": url, "verdict": "made"}
    removed = command.run("rb", "--json", "-y", url, *access).expect(0)
    assert json.loads(removed.stdout) == {"url": url, "verdict": "removed"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["versitygw", "azure"])
def test_a_bucket_that_exists_is_not_made(place: Callable[[str], Place], command: Command, kind: str) -> None:
    there = place(kind)
    refused = command.run("mb", there.url, *there.flags("src")).expect(1)
    assert "exists" in refused.stderr and "choose another name" in refused.stderr.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "-r", "s3://"], "list one bucket"),
        (["ls", "gs://"], "lists buckets by project"),
        (["mb", "s3://bucket/key"], "not a bucket"),
        (["rb", "-y", "/tmp/folder"], "not a bucket"),
        (["rb", "/tmp/folder"], "not a bucket"),
    ],
)
def test_what_an_account_does_not_take_is_refused(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in PROJECT_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_an_empty_directory_is_listed_and_a_missing_one_is_not(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert command.run("ls", tmp_path / "empty").expect(0).stdout == ""
    assert command.run("du", tmp_path / "empty").expect(0).stdout.startswith("0\t0\t")
    command.run("ls", tmp_path / "missing").expect(3)


@pytest.mark.parametrize("verb", ["ls", "du"])
def test_a_bucket_without_its_scheme_is_a_missing_file(command: Command, verb: str) -> None:
    missing = command.run(verb, "my-bucket").expect(3)
    assert missing.stderr.splitlines() == [
        "error: my-bucket: no such file or directory",
        "hint: for a bucket write its kind: s3://my-bucket",
    ]
    (command.home / "my-bucket").write_bytes(b"1")
    command.run(verb, "my-bucket").expect(0)


def test_mb_names_the_url_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mb", "my-bucket"]) == 2
    assert "hint: write s3://my-bucket, gs://BUCKET" in capsys.readouterr().err
