"""`cp - DST` and `cp SRC -`: an option that does not apply is refused, never silently ignored. Ctrl-C is honest."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.faults import Hang, HttpProxy, Request, Rule
from testbed.places import S3Place
from testbed.trees import MIB

REFUSED = (
    ("--dry-run",),
    ("--explain", "x"),
    ("--verify", "read"),
    ("--max-bytes", "1B"),
    ("--limit-rate", "4MB/s"),
    ("--report", "report.ndjson"),
    ("--exclude", "*"),
    ("--topology", "missing.json"),
    ("--tag", "a=b"),
    ("--max-cost=1USD",),
    ("--src-region", "site:a"),
)


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: options[0])
def test_standard_input_refuses_inapplicable_options(
    command: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"precious")
    refused = command.run("cp", "-", kept, *options, stdin=b"other")
    assert refused.code == 2 and f"{options[0].partition('=')[0]} does not apply" in refused.stderr
    assert kept.read_bytes() == b"precious"


@pytest.mark.parametrize("options", [("--dry-run",), ("--report", "report.ndjson"), ("--dst-region", "site:a")])
def test_standard_output_refuses_inapplicable_options(
    command: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "object").write_bytes(b"bytes")
    refused = command.run("cp", tmp_path / "object", "-", *options)
    assert refused.code == 2 and f"{options[0]} does not apply" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize("option", ["-n", "-qn", "-nq", "--no-clobber"])
def test_standard_input_replaces_nothing_where_nothing_may_be_replaced(
    command: Command, tmp_path: Path, option: str
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"precious")
    refused = command.run("cp", option, "-", kept, stdin=b"other")
    assert refused.code == 2 and "does not apply to a copy from standard input" in refused.stderr
    assert kept.read_bytes() == b"precious"


def test_options_that_apply_to_pipes_work(command: Command, tmp_path: Path) -> None:
    command.run("cp", "-", "--to", tmp_path / "object", "--fsync", "--chunk-size", "8MiB", "-q", stdin=b"x").expect(0)
    assert command.run("cp", tmp_path / "object", "-", "-q").expect(0).stdout == "x"


@pytest.mark.parametrize(
    "words", [("cp", "NAME", "x/"), ("rm", "NAME"), ("ls", "NAME"), ("du", "x", "--exclude", "NAME")]
)
def test_an_argument_that_is_not_text_is_refused(command: Command, words: tuple[str, ...]) -> None:
    name = os.fsdecode(b"bad\xff")
    refused = command.run(*(name if word == "NAME" else word for word in words))
    assert refused.code == 2 and "not UTF-8" in refused.stderr and "internal" not in refused.stderr


@pytest.mark.parametrize("size_bytes", [1, 17 * MIB], ids=["whole", "parts"])
def test_an_interrupted_write_that_the_store_may_have_carried_out_is_not_denied(
    command: Command, s3: S3Place, proxy: HttpProxy, size_bytes: int
) -> None:
    content = os.urandom(size_bytes)

    def makes_the_object(request: Request) -> bool:
        return (request.method == "POST" and "uploadId" in request.query) or (request.is_write and not request.is_part)

    written = proxy.add(Rule(Hang(), when=makes_the_object))
    s3.endpoint = proxy.endpoint
    with subprocess.Popen(
        [command.binary, "cp", "-", f"{s3.url}/key", *s3.flags("dst")],
        env=command.full_environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(content)
        process.stdin.close()
        assert written.struck.wait(60.0)
        end_s = time.monotonic() + 60.0
        while s3.sizes() != {"key": size_bytes}:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert process.wait(30.0) == 130
    assert "key may have been written" in said and "nothing was written" not in said
    assert s3.get("key") == content
