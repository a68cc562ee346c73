"""Unreachable stores: messages during the wait, its time limit, and messages that must not appear."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import chain, write
from testbed.drive import Command, Finished
from testbed.faults import Action, Cut, Hang, HttpProxy, Rule
from testbed.places import S3Place
from testbed.trees import MIB, write_large, write_tree

STALL_S = 8
"""Longer than the lead waits before it reports an unreachable store."""


@pytest.fixture
def endpoint(command: Command) -> Iterator[str]:
    """An endpoint at which nothing listens, and which no other server can take. The command has credentials for it."""
    command.environment.update({"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "none"})
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


def waited_in_vain(done: Finished, endpoint: str) -> None:
    assert f"cannot reach {endpoint}: Connection refused" in done.stderr
    assert f"retrying for up to {STALL_S} s (--stall)" in done.stderr
    assert "tradewind doctor" in done.stderr
    assert "left behind" not in done.stderr, "nothing ever reached the store"


@pytest.mark.parametrize("verb", ["cp -r", "sync"])
def test_an_unreachable_source_is_reported_and_fails_after_the_stall(
    command: Command, tmp_path: Path, endpoint: str, verb: str
) -> None:
    words: list[str | Path] = [
        *verb.split(),
        "s3://bucket/x",
        tmp_path / "x",
        "--src-endpoint",
        endpoint,
        "--stall",
        f"{STALL_S}s",
    ]
    waited_in_vain(command.run(*words).expect(5), endpoint)


def test_an_unreachable_destination_is_reported_and_fails_after_the_stall(
    command: Command, tmp_path: Path, endpoint: str
) -> None:
    write_tree(tmp_path / "tree", {"a": 100, "b": 100})
    write_large(tmp_path / "tree" / "large", 24 * MIB)
    words: list[str | Path] = [
        "cp",
        "-r",
        tmp_path / "tree",
        "s3://bucket/x",
        "--chunk-size",
        "8MiB",
        "--dst-endpoint",
        endpoint,
    ]
    done = command.run(*words, "--stall", f"{STALL_S}s").expect(5)
    waited_in_vain(done, endpoint)
    assert "jobs resume" in done.stderr or "resume the job" in done.stderr
    (job,) = [json.loads(line) for line in command.run("jobs", "list", "--json").expect(0).stdout.splitlines()]
    assert job["state"] != "done"


def test_one_unreachable_destination_does_not_stop_the_other(command: Command, tmp_path: Path, endpoint: str) -> None:
    write_tree(tmp_path / "tree", {"a": 100, "b": 100})
    words: list[str | Path] = [
        "cp",
        "-r",
        tmp_path / "tree",
        "--to",
        tmp_path / "copy",
        "--to",
        "s3://bucket/x",
        "--dst-endpoint",
        endpoint,
    ]
    command.run(*words, "--stall", "1s").expect(5)
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"a", "b"}


@pytest.mark.slow
def test_check_reports_that_it_waits_for_an_unreachable_store(command: Command, tmp_path: Path, endpoint: str) -> None:
    write_tree(tmp_path / "tree", {"a": 100})
    done = command.run("check", tmp_path / "tree", "s3://bucket/x", "--dst-endpoint", endpoint).expect(5)
    assert f"note: cannot reach {endpoint}: Connection refused" in done.stderr
    assert "retrying" in done.stderr


@pytest.mark.parametrize("verb", ["ls", "du"])
def test_ls_of_an_unreachable_store_fails_soon(command: Command, endpoint: str, verb: str) -> None:
    done = command.run(verb, "s3://bucket/x", "--endpoint", endpoint).expect(5)
    assert "Connection refused" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("action", [Cut(), Hang()], ids=["cut", "hangs"])
def test_a_store_that_only_the_sink_cannot_reach_fails_after_the_stall(
    command: Command, tmp_path: Path, s3: S3Place, proxy: HttpProxy, action: Action
) -> None:
    """The sink's writes fail, while the lead's requests to the same store are answered."""
    s3.endpoint = proxy.endpoint
    write_tree(tmp_path / "tree", {"a": 100, "b": 100})
    write_large(tmp_path / "tree" / "large", 24 * MIB)
    proxy.add(Rule(action, when=lambda request: request.method in ("PUT", "POST")))
    topology = write(chain(), tmp_path / "topology.json")
    words: tuple[str | Path, ...] = (
        "cp",
        "-r",
        tmp_path / "tree",
        s3.url,
        *s3.flags("dst"),
        "--topology",
        topology,
        "--chunk-size",
        "8MiB",
    )
    stopped = command.run(*words, "--stall", f"{STALL_S}s").expect(5)
    assert f"nothing arrived for {STALL_S} s" in stopped.stderr
    assert "cannot be used" in stopped.stderr, "the problem is reported during the retries"
    (job,) = command.jobs()
    assert job["state"] == "interrupted"
    proxy.clear()
    command.run("jobs", "resume", str(job["id"])).expect(0)
    assert {key.rsplit("/")[-1] for key in s3.sizes()} == {"a", "b", "large"}
