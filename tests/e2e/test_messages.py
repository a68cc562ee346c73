"""Messages that name the cause, and hints that apply to it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import S3Place
from testbed.servers.process import free_port
from testbed.trees import write_tree

#: Time limit of an error that must not be retried.
PROMPT_S = 10.0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path / "tree", {"a": 10, "d/b": 10, "d/c": 10})
    return tmp_path / "tree"


@pytest.mark.parametrize("verb", [["ls", "-r"], ["du"], ["rm", "-r", "-y"], ["check"]], ids=" ".join)
def test_a_filter_that_excludes_everything_is_named(
    command: Command, tree: Path, tmp_path: Path, verb: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    other = [tmp_path / "other"] if verb == ["check"] else []
    done = command.run(*verb, tree, *other, "--include", "nothing").expect(3)
    assert f"error: the filter excludes everything in {tree}" in done.stderr
    assert "hint: check the rules of the filter" in done.stderr
    done = command.run(*verb, tree, *other, "--exclude", "a", "--exclude", "d").expect(3)
    assert f"error: the filter excludes everything in {tree}" in done.stderr


def test_an_empty_place_is_still_reported_as_empty(command: Command, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = command.run("check", tmp_path / "empty", tree, "--one-way").expect(3)
    assert "nothing exists at" in done.stderr


def test_check_of_a_file_explains_that_it_compares_directories(command: Command, tree: Path) -> None:
    for words in ((tree / "a", tree), (tree, tree / "a")):
        done = command.run("check", *words).expect(2)
        assert f"{tree}/a is a file, not a directory" in done.stderr
        assert "check compares directories" in done.stderr


def test_cat_of_a_directory_reports_a_directory(command: Command, tree: Path) -> None:
    said = command.run("cat", tree / "d").expect(3).stderr
    assert f"error: {tree}/d is a directory, not an object\n" in said
    assert f"hint: to print the objects in it: tradewind cat '{tree}/d/*'\n" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["cp", "none", "copy"], 3, "head {here}/none: no such file"),
        (["sync", "none", "copy"], 3, "list {here}/none/: no such directory"),
        (["rm", "none"], 3, "no object has this name: {here}/none"),
        (["cp", "tree/a", "tree/a/c"], 1, "put {here}/tree/a/c: a directory is needed, but a file has this name"),
        (["cp", "-r", "tree", "copy", "--include", "nothing"], 3, "the filter excludes everything in {here}/tree/"),
        (["ls", "-r", "tree", "--include", "nothing"], 3, "the filter excludes everything in {here}/tree/"),
    ],
)
def test_a_file_is_named_by_its_path(command: Command, words: list[str], code: int, said: str) -> None:
    """Nobody types `file:///home/me/none` for a file."""
    write_tree(command.home / "tree", {"a": 10})
    done = command.run(*words).expect(code)
    assert f"error: {said.format(here=command.home)}\n" in done.stderr
    assert "file:" not in done.stderr


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["cp", "-r", "tree", "new", "--dry-run"], "copy\t{here}/tree/a\t{here}/new/a\t10 B\n"),
        (["sync", "tree", "old", "--delete", "-y", "--dry-run"], "delete\t{here}/old/extra\n"),
        (["rm", "-r", "tree", "--dry-run"], "would delete {here}/tree/a\n"),
        (["rm", "tree/a"], "deleted {here}/tree/a\n"),
        (["du", "tree"], "10\t1\t{here}/tree/\n"),
        (["du", "--depth", "1", "."], "\t1\t{here}/tree/\n"),
        (["stat", "tree/a"], "url                  {here}/tree/a\n"),
        (["doctor", "tree"], "     {here}/tree\n"),
        (["sync", "tree", "new", "--explain", "a"], "would be copied: {here}/new/a: nothing exists there\n"),
    ],
)
def test_a_file_is_listed_by_its_path(command: Command, words: list[str], shown: str) -> None:
    """As `aws s3`, rclone and s5cmd do; a list may be the input of the next command. JSON has URLs."""
    write_tree(command.home / "tree", {"a": 10})
    write_tree(command.home / "old", {"extra": 10})
    done = command.run(*words)
    assert shown.format(here=command.home) in done.stdout
    assert "file:" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [["cp", "-r", "tree", "new", "--dry-run"], ["rm", "tree/a", "--dry-run"], ["du", "tree"], ["stat", "tree/a"]],
)
def test_json_names_files_by_their_urls(command: Command, words: list[str]) -> None:
    write_tree(command.home / "tree", {"a": 10})
    assert f'"file://{command.home}/tree' in command.run(*words, "--json").expect(0).stdout


def test_each_of_several_destinations_is_named_by_its_path(command: Command) -> None:
    write_tree(command.home / "tree", {"a": 10})
    done = command.run("cp", "-r", "tree", "--to", "one", "--to", "two").expect(0)
    assert f"        {command.home}/two/: 1 object, 10 B, 0 failed\n" in done.stderr


def test_standard_input_is_counted_in_readable_units(command: Command, tmp_path: Path) -> None:
    done = command.run("cp", "-", tmp_path / "copy", stdin=bytes(1_250_000)).expect(0)
    assert done.stderr.startswith(f"1.25 MB written to {tmp_path}/copy; ")


def test_a_server_without_tls_is_reported_at_once(command: Command, s3: S3Place, tree: Path) -> None:
    s3.put("k", b"x")
    plain, s3.endpoint = s3.endpoint, s3.endpoint.replace("http://", "https://")
    for words in (["cp", "-r", tree, s3.url, *s3.flags("dst")], ["ls", s3.url, *s3.flags("src")]):
        began_s = time.monotonic()
        done = command.run(*words).expect(1)
        assert time.monotonic() - began_s < PROMPT_S
        assert f"cannot connect to {s3.endpoint}: the server does not use TLS: try {plain}" in done.stderr
        assert "left behind" not in done.stderr


def test_a_ceiling_on_bytes_is_reported_with_the_volume_to_move(command: Command, tree: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, tmp_path / "copy", "--max-bytes", "15B").expect(8)
    said = (
        "error: (at least 20|at least 30|30) B would be moved, but --max-bytes allows 15 B\nhint: raise --max-bytes\n"
    )
    assert re.search(said, done.stderr)


def test_no_filter_is_recommended_for_a_named_object(command: Command, tree: Path, tmp_path: Path) -> None:
    long = tmp_path / ("n" * 300)
    assert "hint: choose another destination name\n" in command.run("cp", tree / "a", long).expect(1).stderr
    assert "hint: choose another destination name\n" in command.run("cp", "-", long, stdin=b"x").expect(1).stderr
    (tmp_path / "link").symlink_to("nowhere")
    dangling = command.run("cp", tmp_path / "link", tmp_path / "copy", "--follow-symlinks")
    assert "hint: repair or remove the link\n" in dangling.stderr, dangling.stderr


def test_a_bad_name_in_a_list_is_not_called_a_bad_destination(command: Command, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a\nd/../a\n")
    done = command.run("cp", tree, tmp_path / "copy", "--files-from", tmp_path / "names").expect(4)
    assert "hint: correct the name, or leave the object out with --exclude" in done.stderr


def test_the_hint_for_an_unreachable_store_names_the_job_to_resume(command: Command, tree: Path) -> None:
    command.environment.update({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "none"})
    endpoint = f"http://127.0.0.1:{free_port()}"
    done = command.run("cp", "-r", tree, "s3://bucket/x", "--dst-endpoint", endpoint, "--stall", "2s").expect(5)
    (job,) = command.jobs()
    assert f"then run `tradewind jobs resume {job['id']}`" in done.stderr
    words = ["cp", "-r", "s3://bucket/x", str(tree), "--src-endpoint", endpoint, "--stall", "2s"]
    tried = command.run(*words, "--dry-run").expect(5)
    assert "then run the command again" in tried.stderr


def test_a_failure_of_the_only_object_in_a_tree_is_printed_once(command: Command, tmp_path: Path) -> None:
    write_tree(tmp_path / "one", {"a": 10})
    (tmp_path / "there" / "a").mkdir(parents=True)
    for verb in (["cp", "-r"], ["sync"], ["mv", "-r"]):
        done = command.run(*verb, tmp_path / "one", tmp_path / "there").expect(1)
        assert done.stderr.count("a directory has this name") == 1 and done.stderr.count("hint: ") == 1, done.stderr
        assert done.stderr.endswith("error: 1 of 1 object failed\n")


def test_one_object_is_singular(command: Command, tree: Path, tmp_path: Path) -> None:
    write_tree(tmp_path / "other", {"a": 10, "d/b": 10})
    (tmp_path / "other" / "a").write_bytes((tree / "a").read_bytes())
    (tmp_path / "other" / "d" / "b").write_bytes((tree / "d" / "b").read_bytes())
    assert "the trees differ in 1 name\n" in command.run("check", tree, tmp_path / "other").expect(6).stderr
    command.run("cp", "-", tmp_path / "one", stdin=b"x").expect(0)
    too_much = command.run("cp", tmp_path / "one", tmp_path / "copy", "--max-bytes", "0B").expect(8)
    assert "1 B would be moved" in too_much.stderr
    Path(os.fsdecode(os.fsencode(tree) + b"/bad-\xff")).write_bytes(b"x")
    assert "1 entry could not be listed\n" in command.run("ls", "-r", tree).expect(4).stderr
