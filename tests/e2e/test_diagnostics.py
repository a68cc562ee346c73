"""Errors name the address, the proxy, the credentials and the kind of a file; TLS mistakes are explained."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.faults import Answer, HttpProxy, Rule
from testbed.places import S3Place
from testbed.servers import Server, versitygw
from testbed.servers.process import free_port
from testbed.trees import MIB, write_large, write_tree


@pytest.fixture(scope="module")
def tls_server() -> Iterator[Server]:
    """An S3 server whose certificate is signed by a CA that nobody trusts."""
    with versitygw(tls=True) as server:
        yield server


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path / "tree", {"a": 10, "d/b": 10})
    return tmp_path / "tree"


def secure(command: Command, server: Server) -> str:
    """Give the command the server's credentials. Return its address."""
    command.environment.update({"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key})
    return server.endpoint


def test_an_unknown_ca_names_the_option_that_trusts_it(command: Command, tls_server: Server, tree: Path) -> None:
    endpoint = secure(command, tls_server)
    tries: tuple[list[str | Path], ...] = (
        ["ls", "s3://bucket", "--endpoint", endpoint],
        ["cp", "-r", tree, "s3://b/x", "--dst-endpoint", endpoint],
    )
    for words in tries:
        done = command.run(*words).expect(1)
        assert f"cannot connect to {endpoint}: the server's certificate is signed by a CA that is not" in done.stderr
        assert "--ca-bundle FILE" in done.stderr
    command.run("mb", "s3://bucket", "--endpoint", endpoint, "--ca-bundle", tls_server.ca_file or "").expect(0)
    found = command.run("doctor", "s3://bucket", "--endpoint", endpoint).expect(1).stdout
    assert "BAD  list " in found and "--ca-bundle FILE" in found


def test_plain_http_to_a_server_with_tls_names_https(command: Command, tls_server: Server, tree: Path) -> None:
    endpoint = secure(command, tls_server)
    plain = endpoint.replace("https", "http")
    words: list[str | Path] = ["cp", "-r", tree, "s3://b/x", "--dst-endpoint", plain, "--stall", "1s"]
    for done in (command.run("ls", "s3://bucket", "--endpoint", plain).expect(5), command.run(*words).expect(5)):
        assert f"if the server uses TLS, try {endpoint}" in done.stderr


def test_address_and_proxy_of_a_failed_connection_are_named(command: Command, s3: S3Place, tree: Path) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    command.environment["http_proxy"] = proxy.replace("://", "://user:secret@")
    done = command.run("ls", s3.url, *s3.flags("src")).expect(5)
    assert f"cannot connect to {s3.endpoint} through the proxy {proxy}: Connection refused" in done.stderr
    copied = command.run("cp", "-r", tree, s3.url, *s3.flags("dst"), "--stall", "1s").expect(5)
    assert f"(through the proxy {proxy})" in copied.stderr
    assert "secret" not in done.stderr + copied.stderr


def test_refused_credentials_are_named_by_their_source(command: Command, s3: S3Place, tree: Path) -> None:
    endpoint = ("--endpoint", s3.endpoint)
    command.environment.update({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "wrong"})
    assert "; credentials: environment\n" in command.run("ls", s3.url, *endpoint).expect(7).stderr
    done = command.run("cp", "-r", tree, s3.url, "--dst-endpoint", s3.endpoint).expect(7)
    assert "; credentials: environment\n" in done.stderr and "wrong" not in done.stderr
    anonymous = command.run("ls", s3.url, *endpoint, "--no-sign").expect(7)
    assert "; credentials: none (anonymous)\n" in anonymous.stderr


@pytest.mark.parametrize(
    ("url", "way"),
    [
        ("s3://bucket", "set AWS_PROFILE or AWS_ACCESS_KEY_ID"),
        ("gs://bucket", "set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`"),
        ("az://account/container", "set AZURE_STORAGE_ACCOUNT_KEY or sign in with `az login`"),
    ],
)
def test_missing_credentials_name_the_way_to_get_some(command: Command, url: str, way: str) -> None:
    # No instance metadata answers there.
    nowhere = f"127.0.0.1:{free_port()}"
    command.environment.update({"GCE_METADATA_HOST": nowhere, "IDENTITY_ENDPOINT": f"http://{nowhere}/"})
    done = command.run("ls", url).expect(7)
    assert f"error: list {url}: no credentials: " in done.stderr and way in done.stderr


def test_a_wrong_bucket_warns_of_no_uploads(command: Command, s3: S3Place, tmp_path: Path) -> None:
    write_large(tmp_path / "large", 12 * MIB)
    write_tree(tmp_path / "tree", {"a": 10})
    write_large(tmp_path / "tree" / "large", 12 * MIB)
    tree = tmp_path / "tree"
    tries: tuple[list[str | Path], ...] = (["cp", tmp_path / "large"], ["cp", "-r", tree], ["sync", tree])
    for words in tries:
        done = command.run(*words, "s3://no-such-bucket/x", *s3.flags("dst"), "--chunk-size", "5MiB")
        assert done.code == 1 and "check the bucket's name" in done.stderr
        assert "upload may" not in done.stderr and "left behind" not in done.stderr


def test_special_files_have_their_own_words(command: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "to-device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, words in (
            ("fifo", "a FIFO"),
            ("socket", "a socket"),
            ("dangling", "a broken symbolic link"),
            ("to-device", "a symbolic link to a device"),
            ("/dev/null", "a device"),
        ):
            assert words in command.run("cp", tmp_path / name, tmp_path / "copy").expect(1).stderr
    piped = command.run("cp", tmp_path / "fifo", tmp_path / "copy")
    assert "hint: to copy what a program writes to it: tradewind cp - DST < FIFO" in piped.stderr
    (tmp_path / "file").touch()
    assert "tradewind cp SRC - > FILE" in command.run("cp", tmp_path / "file", "/dev/null").expect(1).stderr
    followed = command.run("cp", tmp_path / "dangling", tmp_path / "copy", "--follow-symlinks").expect(1)
    assert "a broken symbolic link" in followed.stderr and "hint: repair or remove the link" in followed.stderr


def test_a_directory_copied_as_an_object_suggests_r(command: Command, s3: S3Place, tmp_path: Path) -> None:
    s3.put("data/a", b"x")
    s3.put("data-1", b"x")
    done = command.run("cp", f"{s3.url}/data", tmp_path / "copy", *s3.flags("src")).expect(3)
    assert f"{s3.url}/data is a directory, not an object" in done.stderr and "hint: add -r" in done.stderr
    missing = command.run("cp", f"{s3.url}/dat", tmp_path / "copy", *s3.flags("src")).expect(3)
    assert "is a directory" not in missing.stderr


@pytest.mark.parametrize("verb", [("sync",), ("sync", "--delete", "-y"), ("cp", "-r")])
def test_an_object_copied_as_a_directory_suggests_cp(
    command: Command, s3: S3Place, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    s3.put("data/a", b"x")
    for name in ("data/a", "data/a/"):
        done = command.run(*verb, f"{s3.url}/{name}", tmp_path / "copy", *s3.flags("src")).expect(3)
        assert f"error: {s3.url}/data/a is an object, not a directory" in done.stderr
        assert "hint: to copy one object: tradewind cp SRC DST, without -r" in done.stderr
        assert "allow-empty" not in done.stderr
    missing = command.run(*verb, f"{s3.url}/data/b", tmp_path / "copy", *s3.flags("src")).expect(3)
    assert "nothing exists at" in missing.stderr


def test_doctor_has_one_layout(command: Command, s3: S3Place) -> None:
    done = command.run("doctor", s3.url, "s3://no-such-bucket", "--endpoint", s3.endpoint, *s3.flags("src")[2:]).expect(
        1
    )
    marks = {line[:5].strip() for line in done.stdout.splitlines()}
    assert marks <= {"", "ok", "BAD", "none", "warn"}
    assert "ok   list           can be listed" in done.stdout and f"     {s3.url}\n" in done.stdout
    bad = next(line for line in done.stdout.splitlines() if line.startswith("BAD"))
    assert bad.startswith("BAD  list           list s3://no-such-bucket: ")
    rows = [json.loads(line) for line in command.run("doctor", s3.url, *s3.flags("src"), "--json").stdout.splitlines()]
    assert all({"name", "good", "what"} <= set(row) for row in rows)
    assert {row["name"] for row in rows if row.get("store") == s3.url} >= {"endpoint", "credentials", "clock", "list"}


def test_doctor_does_not_recommend_itself(command: Command) -> None:
    command.environment.update({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "none"})
    done = command.run("doctor", "s3://bucket", "--endpoint", f"http://127.0.0.1:{free_port()}").expect(5)
    assert "BAD  list" in done.stdout and "tradewind doctor" not in done.stdout


def rows_of_store(command: Command, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of `doctor`, and its rows about the store by name."""
    done = command.run("doctor", *words, "--json")
    rows = map(json.loads, done.stdout.splitlines())
    return done.code, {row["name"]: row for row in rows if row.get("store") == words[0]}


def test_doctor_confirms_nothing_about_a_store_that_it_cannot_reach(
    command: Command, tls_server: Server, s3: S3Place
) -> None:
    secure(command, tls_server)
    for endpoint, expected in ((f"http://127.0.0.1:{free_port()}", 5), (tls_server.endpoint, 1)):
        code, rows = rows_of_store(command, "s3://bucket", "--endpoint", endpoint)
        assert code == expected
        assert not rows["endpoint"]["good"] and not rows["list"]["good"]
        assert rows["credentials"]["doubtful"], "they were not checked"


@pytest.mark.parametrize(
    ("status", "code", "word"),
    [(403, 7, "AccessDenied"), (404, 1, "NoSuchBucket"), (500, 5, "InternalError"), (200, 0, "")],
)
def test_doctor_ends_well_only_without_a_bad_row(
    command: Command, s3: S3Place, status: int, code: int, word: str
) -> None:
    with HttpProxy(s3.endpoint) as proxy:
        if status != 200:
            proxy.add(Rule(Answer(status, word)))
        s3.endpoint = proxy.endpoint
        ended, rows = rows_of_store(command, s3.url, *s3.flags("src"))
    assert ended == code, rows
    assert all(row["good"] for row in rows.values()) is (code == 0)
    assert rows["credentials"]["good"] and rows["endpoint"]["good"]
