"""Readers that go away, and streams that are closed or full: no command stops early and reports success."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Hang, HttpProxy, Rule
from testbed.places import S3Place
from testbed.servers.process import guarded

FILES = 300
READS_ONE_LINE = ("head", "-1")
READS_NOTHING = ("true",)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:03}").write_bytes(os.urandom(100))
    return folder


def piped(command: Command, reader: tuple[str, ...], *words: str | Path, errors_too: bool = False) -> int:
    """Run the command with its output piped to `reader`, which ends soon; return the command's exit code."""
    process = subprocess.Popen(
        guarded([str(command.binary), *map(str, words)]),
        env=command.full_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if errors_too else subprocess.DEVNULL,
    )
    subprocess.run(reader, stdin=process.stdout, stdout=subprocess.DEVNULL, check=True, timeout=60)
    assert process.stdout is not None
    process.stdout.close()
    return process.wait(120)


def shell(command: Command, line: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a shell `line` in which "$@" is the command."""
    return subprocess.run(
        guarded(["sh", "-c", line, "sh", str(command.binary), *map(str, words)]),
        env=command.full_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("errors_too", [False, True])
@pytest.mark.parametrize("reader", [READS_ONE_LINE, READS_NOTHING])
@pytest.mark.parametrize("verb", [("cp", "-r"), ("mv", "-r"), ("sync",)])
def test_a_transfer_continues_without_a_reader_of_its_output(
    command: Command, tree: Path, tmp_path: Path, verb: tuple[str, ...], reader: tuple[str, ...], errors_too: bool
) -> None:
    expected = {entry.name: entry.read_bytes() for entry in tree.iterdir()}
    words: list[str | Path] = [*verb, tree, tmp_path / "copy", *([] if errors_too else ["--json"])]
    assert piped(command, reader, *words, errors_too=errors_too) == 0
    assert {entry.name: entry.read_bytes() for entry in (tmp_path / "copy").iterdir()} == expected
    if verb[0] == "mv":
        assert names(tree) == []


def test_a_transfer_without_a_reader_has_the_exit_code_of_its_failure(
    command: Command, tree: Path, tmp_path: Path
) -> None:
    (tree / "007").unlink()
    (tree / "007").symlink_to("nowhere")
    words: list[str | Path] = ["cp", "-r", tree, tmp_path / "copy", "--follow-symlinks", "--json"]
    assert piped(command, READS_NOTHING, *words) == 4
    assert len(names(tmp_path / "copy")) == FILES - 1


def test_rm_continues_without_a_reader_of_its_output(command: Command, tree: Path) -> None:
    assert piped(command, READS_NOTHING, "rm", "-r", "-y", tree) == 0
    assert names(tree) == []


def test_check_has_its_exit_code_without_a_reader(command: Command, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert piped(command, READS_NOTHING, "check", tree, tmp_path / "other") == 6


def test_a_listing_ends_with_its_reader(command: Command, tree: Path) -> None:
    assert piped(command, READS_ONE_LINE, "ls", tree) == 0


def test_a_copy_to_standard_output_fails_with_its_reader(command: Command, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(8 << 20))
    done = shell(command, '{ "$@"; echo "code $?" >&2; } | head -c 10 > /dev/null', "cp", large, "-")
    assert done.stderr.splitlines() == [
        "error: standard output was closed before all bytes were written",
        "hint: to write the start of an object only, use `tradewind cat`",
        "code 1",
    ]
    done = shell(command, '{ "$@"; echo "code $?" >&2; } | head -c 10 > /dev/null', "cat", large)
    assert done.stderr == "code 0\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", [("cp", "-r"), ("sync",)])
def test_a_transfer_works_with_closed_streams(
    command: Command, tree: Path, tmp_path: Path, closed: str, verb: tuple[str, ...]
) -> None:
    done = shell(command, f'"$@" {closed}', *verb, tree, tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "copy") == names(tree)
    assert (tmp_path / "copy" / "000").read_bytes() == (tree / "000").read_bytes()


def test_a_closed_standard_input_is_not_copied(command: Command, tmp_path: Path) -> None:
    done = shell(command, '"$@" <&-', "cp", "-", tmp_path / "object")
    assert (done.returncode, names(tmp_path / "object")) == (2, [])
    assert not (tmp_path / "object").exists()
    assert "standard input is closed" in done.stderr


def test_objects_are_not_written_to_a_closed_standard_output(command: Command, tree: Path) -> None:
    for words in (("cat", tree / "000"), ("cp", tree / "000", "-")):
        done = shell(command, '"$@" >&-', *words)
        assert done.returncode == 2
        assert "standard output is closed" in done.stderr


def test_a_full_standard_output_is_an_error(command: Command, tree: Path) -> None:
    for words in (("ls", tree), ("config", "show"), ("cat", tree / "000")):
        done = shell(command, '"$@" > /dev/full', *words)
        assert done.returncode == 1
        assert "error: standard output: No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_limit_on_file_sizes_is_an_error(command: Command, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    (tmp_path / "small").write_bytes(b"x")
    done = shell(command, 'ulimit -f 2048; "$@"', "cp", tmp_path / "large", tmp_path / "copy")
    assert done.returncode == 1, done.stderr
    assert "ulimit -f" in done.stderr
    assert not (tmp_path / "copy").exists()


def test_quiet_prints_only_what_was_asked_for_and_errors(command: Command, s3: S3Place, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("a")
    (tree / "link").symlink_to("a")
    s3.put("d/a", b"a")
    dst, src = s3.flags("dst"), s3.flags("src")
    new = f"{s3.url}-new"
    for words in (
        ["cp", "-", f"{s3.url}/p", *dst],
        ["check", tree, f"{s3.url}/d", *dst],
        ["cp", "-r", tree, f"{s3.url}/e", *dst],
        ["sync", tree, f"{s3.url}/e", *dst],
        ["rm", f"{s3.url}/p", *src],
        ["rm", "-r", f"{s3.url}/e", *src],
        ["mb", new, *src],
        ["rb", new, "-y", *src],
    ):
        done = command.run(*words, "-q", stdin=b"x").expect(0)
        assert done.stdout + done.stderr == "", words
    listed = command.run("ls", "-q", tree).expect(0)
    assert (listed.stdout, listed.stderr) == ("a\n", "")
    for pattern in ([f"{tree}/*"], [tree / "a", f"{tree}/*"]):
        printed = command.run("cat", "-q", *pattern).expect(0)
        assert (printed.stdout, printed.stderr) == ("a" * len(pattern), "")
    summed = command.run("du", "-q", tree).expect(0)
    assert summed.stdout.startswith("1\t1\t") and summed.stderr == ""
    differ = command.run("check", tree, f"{s3.url}/missing", "-q", *dst).expect(6)
    assert "a" in differ.stdout and differ.stderr.startswith("error: the trees differ in 1 name\n")


def test_data_and_messages_in_one_file_keep_their_order(command: Command, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    done = shell(command, '"$@" 2>&1', "check", tree, tmp_path / "part")
    lines = done.stdout.splitlines()
    assert lines[:FILES] == [f"missing  {number:03}" for number in range(FILES)]
    assert lines[FILES] == f"0 same, {FILES} missing, 0 extra, 0 differ, 0 unproven, 0 failed"


def test_an_encoding_without_arrows_gets_plain_characters(command: Command, tmp_path: Path) -> None:
    (tmp_path / "é文").write_bytes(b"x")
    command.environment["PYTHONIOENCODING"] = "latin-1"
    done = shell(command, '"$@" 2>&1 | iconv -f latin1', "cp", tmp_path / "é文", tmp_path / "copy")
    assert done.stdout.startswith(f"copy    {tmp_path}/é\\u6587 -> {tmp_path}/copy\n")


def test_the_verdict_of_doctor_is_its_last_line(command: Command, tmp_path: Path) -> None:
    done = shell(command, '"$@" 2>&1', "doctor", tmp_path / "missing")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "error: not all stores can be used"


def test_a_terminal_shows_names_while_the_rest_is_still_listed(command: Command, s3: S3Place, proxy: HttpProxy) -> None:
    command.run("cp", "-r", "mem:?objects=1100&size_bytes=1", f"{s3.url}/many", *s3.flags("dst")).expect(0)
    s3.endpoint = proxy.endpoint
    rest = proxy.add(Rule(Hang(), when=lambda request: "continuation-token" in request.query))
    parent, child = pty.openpty()
    process = subprocess.Popen(
        guarded([str(command.binary), "ls", "-r", f"{s3.url}/many", *s3.flags("src")]),
        env=command.full_environment(),
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.DEVNULL,
    )
    os.close(child)
    seen = b""
    try:
        while seen.count(b"\n") < 1000:
            seen += os.read(parent, 65536)
        assert rest.struck.wait(60) and process.poll() is None
    finally:
        process.kill()
        process.wait()
        os.close(parent)
