"""`tradewind init`: from an ssh configuration to hosts on which gateways run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command
from testbed.sshd import local_ssh_server, sshd_unavailable


class Stage:
    """A user whose ssh configuration names a host that works, one that does not exist, and patterns."""

    def __init__(self, command: Command, ssh_config: Path) -> None:
        self.command = command
        self.path = command.configuration
        self.path.parent.mkdir(parents=True)
        more = "\nHost no-such-host.invalid\n  User me\nHost *.example !not.example\n  User me\n"
        ssh_config.write_text(ssh_config.read_text() + more)
        self.before = f'chunk_size = "8MiB"\n[ssh]\nconfig = "{ssh_config}"'
        self.path.write_text(self.before)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        yield Stage(Command(tmp_path / "home"), server.config)


def test_hosts_that_work_are_added_and_nothing_is_overwritten(stage: Stage) -> None:
    """Without -y nothing is written where nobody can be asked. A second time there is nothing to add."""
    shown = stage.command.run("init").expect(0)
    assert "ok   here  gateways can run there\n" in shown.stdout
    assert "BAD  no-such-host.invalid  no-such-host.invalid: ssh: Could not resolve hostname" in shown.stdout
    assert "example" not in shown.stdout and stage.path.read_text() == stage.before
    assert f"hint: -y adds 1 host to {stage.path}" in shown.stderr
    assert shown.stdout.endswith("site:here  1 machine left on your hosts, from $0.00 per hour\n")
    stage.command.run("init", "-y").expect(0)
    tables = '[[ssh.hosts]]\nname = "here"\nregion = "site:here"\naddress = "127.0.0.1"\n'
    assert stage.path.read_text() == f"{stage.before}\n\n{tables}"
    assert stage.command.run("fleet", "sweep").expect(0).stdout == "nothing is left\n"
    assert "ok   machines       site:here  1 machine left" in stage.command.run("doctor").stdout
    again = stage.command.run("init", "-y").expect(0)
    assert "ok   here" not in again.stdout and again.stdout.endswith("from $0.00 per hour\n")
    assert stage.path.read_text() == f"{stage.before}\n\n{tables}"


def test_a_configured_host_that_cannot_be_used_fails_with_its_reason(stage: Stage) -> None:
    stage.path.write_text(f'{stage.before}\n[[ssh.hosts]]\nname = "gone.invalid"\nregion = "site:gone"\n')
    done = stage.command.run("init").expect(1)
    assert "error: site:gone cannot be used: gone.invalid: ssh: Could not resolve hostname" in done.stderr
    assert "BAD  machines       site:gone: gone.invalid: ssh: Could" in stage.command.run("doctor").expect(1).stdout


def test_nothing_found_says_where_to_read(tmp_path: Path) -> None:
    command = Command(tmp_path / "home")
    command.configure("[ssh]", 'config = "/nothing"')
    assert "docs/guides/fleet.md" in command.run("init").expect(1).stdout
