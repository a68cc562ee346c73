"""``--via fleet`` over SSH hosts that are this host under several names."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.servers import Server
from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.transfers import SECRET, Transfer, files_in, holding, ready, two_stores
from tests.fleet.worlds import wait_until

HERE, NOWHERE = "127.0.0.1", "192.0.2.1"
HOSTS = ("a", "relay", "b")


class HostTransfer(Transfer):
    """A transfer between two hosts, over a third one."""

    def __init__(self, server: LocalServer, folder: Path, stores: tuple[Server, Server]) -> None:
        source, relay, sink = (f"site:{name}" for name in HOSTS)
        super().__init__(folder, stores, (source, relay, sink))
        with server.config.open("a", encoding="utf-8") as config:
            config.writelines(f"Host {name}\n  HostName {HERE}\n" for name in HOSTS)
        self.server = server
        self.configure()

    def configure(self, **settings: str) -> None:
        """Write the configuration, with further settings of hosts by their names."""
        lines = ["[ssh]", f'config = "{self.server.config}"']
        for name in HOSTS:
            lines += ["[[ssh.hosts]]", f'name = "{name}"', f'region = "site:{name}"', "usd_per_hour = 1"]
            lines += [f'folder = "{self.folder}/on {name}"', settings.get(name, f'address = "{HERE}"')]
        self.command.configure(*lines)

    def gateway(self, name: str) -> int:
        """Return the process id of the gateway on a host."""
        (pid,) = self.folder.glob(f"on {name}/machines/*/pid")
        return int(pid.read_text())

    def check_has_no_key(self) -> None:
        """The same also for the hosts: their files, and the arguments and environments of their gateways."""
        super().check_has_no_key()
        files = [path for name in HOSTS for path in files_in(self.folder / f"on {name}" / "machines")]
        pids = [self.gateway(name) for name in HOSTS]
        processes = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")]
        for text in (SECRET, "token_hex"):
            assert files and holding(text, [*files, *processes]) == []

    def check_nothing_is_left(self) -> None:
        super().check_nothing_is_left()
        wait_until(lambda: not list(self.folder.glob("on */machines/*")))


@pytest.fixture
def transfer(tmp_path: Path) -> Iterator[HostTransfer]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with (
        TemporaryDirectory(prefix="tw-ssh-") as short,
        local_ssh_server(Path(short, "ssh")) as server,
        two_stores(HERE, tmp_path) as stores,
        ready(HostTransfer(server, tmp_path, stores)) as made,
    ):
        yield made


@pytest.mark.slow
def test_a_relay_is_killed_and_replaced_and_no_secret_is_on_a_host(transfer: HostTransfer) -> None:
    running = transfer.start()
    transfer.check_has_no_key()
    os.kill(transfer.gateway("relay"), signal.SIGKILL)
    transfer.check(transfer.finish_replaced(running))


def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(transfer: HostTransfer) -> None:
    transfer.sweep_after_a_kill(transfer.start())
    assert not list(transfer.folder.glob("on */*/*"))
    transfer.command.run("fleet", "down").expect(0)


@pytest.mark.slow
def test_a_host_that_accepts_no_connections_opens_them(transfer: HostTransfer) -> None:
    """Nobody could connect to its address. Its gateway connects to the others."""
    transfer.configure(b=f'address = "{NOWHERE}"\ninbound = false')
    done = transfer.start().finish()
    assert any("site-b" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    transfer.check(done)
