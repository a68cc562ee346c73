"""Hosts whose users have another login shell than one of POSIX: the SSH server hands it each command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.debian import debian_program
from testbed.servers import InstallError
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.test_ssh_faults import FLEET, REGION, Stage, launch
from tradewind.fleet.provider import FLEET_TAG, CallRefused
from tradewind.fleet.providers.ssh import SshProvider
from tradewind.fleet.ssh.quoting import shell_word

SHELLS = ("fish", "tcsh", "bash", "sh")
#: Words that one of these shells misreads in quotes.
WORDS = (
    "it's",
    "a!b",
    "!!",
    "back\\slash",
    "\\'",
    "\\\\",
    'a "word"',
    "$HOME `id` $(id)",
    "*?{a,b}~",
    "%self",
    "",
    "-n",
)


def shell(name: str) -> str:
    try:
        return debian_program(name)
    except InstallError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_reads_a_quoted_word_as_it_is(name: str) -> None:
    for word in WORDS:
        done = subprocess.run([shell(name), "-c", f"printf %s/ {shell_word(word)}"], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"{word}/", ""), word


def test_lines_cannot_be_quoted_for_every_shell() -> None:
    with pytest.raises(ValueError, match="a line break"):
        shell_word("one\ntwo")


@pytest.fixture(params=SHELLS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A host whose SSH server gives each command to a shell, as to the login shell of a user."""
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    program = shell(request.param)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        server.stop()
        with server.settings.open("a") as settings:
            settings.write(f'ForceCommand {program} -c "$SSH_ORIGINAL_COMMAND"\n')
        server.start()
        made = Stage(server, tmp_path)
        made.on_host = tmp_path / "it's on!the \\\\ host"
        yield made
        with suppress(CallRefused):
            made.provider().terminate([found.id for found in made.provider().leftovers()])


def test_a_machine_runs_and_ends_whatever_the_login_shell_is(stage: Stage) -> None:
    provider = stage.provider()
    assert isinstance(provider, SshProvider)
    result = launch(provider)
    assert result.machine is not None, result.refusal
    assert [machine.id for machine in provider.machines({FLEET_TAG: FLEET})] == [result.machine.id]
    host = provider.host(result.machine)
    assert host is not None and isinstance(host.log_tail(10_000), str)
    path = host.put("it's", b'#!/bin/sh\necho "hello $1"; echo problem >&2; exit 3\n')
    assert host.run([path, "!there\\ and\nhere"], 60.0) == (3, "hello !there\\ and\nhere\nproblem\n")
    assert host.run(["no-such-command"], 60.0)[0] != 0
    assert provider.terminate([result.machine.id])[0].refusal is None
    assert not [one for one in provider.machines({FLEET_TAG: FLEET}) if not one.ended]
    assert provider.quota(REGION) is not None
