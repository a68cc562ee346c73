"""Hosts that answer something else than a gateway's host would, and a user's configuration for logins by hand."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.test_ssh_faults import FLEET, REGION, Stage, launch, stage
from tradewind.fleet.provider import FLEET_TAG, NAME_TAG, CallRefused, Refusal
from tradewind.fleet.ssh.bounded import OUTPUT_BYTES_MAX, run_bounded
from tradewind.fleet.ssh.marks import parsed_object

__all__ = ["stage"]

#: Runs in place of each command on the host. The first one keeps the connection open.
ANSWERS = """\
import os, sys
if os.environ.get("SSH_ORIGINAL_COMMAND") != "sh -s":
    os.execlp("sh", "sh", "-c", os.environ["SSH_ORIGINAL_COMMAND"])
asked = sys.stdin.read()
"""


def command_of(stage: Stage, text: str) -> None:
    """Let the host run this Python program in place of each command."""
    program = stage.folder / "program.py"
    program.write_text(text)
    with open(stage.server.settings, "a") as file:
        file.write(f"ForceCommand {shlex.join([sys.executable, str(program)])}\n")
    stage.server.stop()
    stage.server.start()


@pytest.fixture
def hostile(stage: Stage) -> Iterator[Stage]:
    honest = stage.server.settings.read_text()
    yield stage
    stage.server.settings.write_text(honest)


def refused(stage: Stage) -> Refusal:
    with pytest.raises(CallRefused) as caught:
        stage.provider().machines({})
    return caught.value.refusal


def test_a_greeting_without_end_is_refused(hostile: Stage) -> None:
    command_of(hostile, "while True: print('welcome ' * 1000)")
    assert "its greeting does not end" in refused(hostile).reason


def test_an_answer_without_end_is_refused(hostile: Stage) -> None:
    command_of(hostile, ANSWERS + "for _ in range(30): print('x' * (1 << 20))")
    assert "the answer of the host is too long" in refused(hostile).reason


REAL = {"region": REGION, "type": None, "place": 0, "launched_unix_s": 1.0, "lease_s": 60, "owner": "me"}
MARK = json.dumps({**REAL, "tags": {FLEET_TAG: FLEET, NAME_TAG: "one"}})
FOLDER = "0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("folder", "mark", "ready", "names"),
    [
        (FOLDER, '{"tags": 5}', "{}", []),
        (FOLDER, json.dumps({**REAL, "tags": {FLEET_TAG: ["x"], NAME_TAG: "one"}}), "{}", []),
        (FOLDER, "[" * 100_000, "{}", []),
        ("..", MARK, "{}", []),
        ("ssh-0", MARK, "{}", []),
        (FOLDER, MARK, '{"control": 5, "data_address": {"a": 1}}', ["one"]),
        (FOLDER, MARK, '{"control": "", "data_address": "x:y:z"}', ["one"]),
    ],
)
def test_a_line_with_other_values_is_no_traceback(
    hostile: Stage, folder: str, mark: str, ready: str, names: list[str]
) -> None:
    """A machine of ours is listed with what can be read of it; other lines are none of ours."""
    line = "\t".join(("machine", folder, "running", mark, ready))
    command_of(hostile, f"{ANSWERS}print({line!r})\nprint('done')")
    provider = hostile.provider()
    provider.adopt(FLEET)  # type: ignore[attr-defined]
    found = provider.machines({FLEET_TAG: FLEET})
    assert [machine.name for machine in found] == names and all(one.data_at_home is None for one in found)
    provider.terminate([one.id for one in found])


def test_an_answer_without_a_path_is_refused(hostile: Stage) -> None:
    line = "\t".join(("machine", FOLDER, "running", MARK, '{"control": "unix:control"}'))
    command_of(hostile, f"{ANSWERS}print({line!r} if 'list_machines' in asked.splitlines()[-1] else '')\nprint('done')")
    provider = hostile.provider()
    with pytest.raises(CallRefused, match="the answer of the host is not complete"):
        provider.adopt(FLEET)  # type: ignore[attr-defined]
    provider.terminate([])


def test_a_deep_document_is_no_object() -> None:
    assert parsed_object("[" * 100_000) is None


def test_output_is_truncated_to_its_end() -> None:
    code, out, errors = run_bounded(
        ["sh", "-c", "yes 12345678 | head -c 3000000; echo end; echo bad >&2; exit 3"], b"", 20
    )
    assert (code, len(out), out[-4:], errors) == (3, OUTPUT_BYTES_MAX, b"end\n", b"bad\n")
    assert run_bounded(["cat"], b"x" * 100_000, 20)[1] == b"x" * 100_000
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(["sleep", "60"], b"", 0.1)


def test_settings_for_logins_by_hand_do_not_matter(stage: Stage) -> None:
    """Least of all does a host get the user's agent."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = stage.server.config
        lines = [
            "ForwardAgent yes",
            "RequestTTY force",
            "RemoteCommand tmux",
            "ExitOnForwardFailure yes",
            f"LocalForward 127.0.0.1:{taken.getsockname()[1]} 127.0.0.1:1",
        ]
        config.write_text(config.read_text() + "".join(f"  {line}\n" for line in lines))
        agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
        values = dict(part.partition("=")[::2] for part in agent.replace("\n", "").split(";") if "=" in part)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SSH_AUTH_SOCK", values["SSH_AUTH_SOCK"])
                provider = stage.provider()
                result = launch(provider)
                machine = result.machine
                assert machine is not None, result.refusal
                host = provider.host(machine)
                assert host is not None and host.run(["printenv", "SSH_AUTH_SOCK"], 10) == (1, "")
                provider.terminate([machine.id])
        finally:
            os.kill(int(values["SSH_AGENT_PID"]), 15)
            Path(values["SSH_AUTH_SOCK"]).unlink(missing_ok=True)
