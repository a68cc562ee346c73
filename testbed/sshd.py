"""Real SSH servers on the machines of a sky, behind a jump host, and a configuration of `ssh` that reaches them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers import InstallError
from testbed.servers.process import free_port
from tradewind.sky.running import Sky

__all__ = ["ssh_servers", "sshd_unavailable"]

PORT = 2222
START_S = 20.0
SERVER = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
ListenAddress 0.0.0.0:{port}
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
SetEnv SHLVL=1
"""
"""Settings of a server. Debian's bash reads ~/.bashrc for a command over SSH if it is the first shell. `SHLVL` says it
is not, because the developer's own file may be slow.
"""
CLIENT = """\
Host *
  User root
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""

WAIT = f"""
import socket, sys, time
for _ in range({START_S:.0f} * 10):
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("nobody listens")
"""
"""Waits until a server accepts connections."""


def sshd_unavailable() -> str | None:
    """Return why no SSH server can run here, or None. Installs Debian's server if it is missing."""
    try:
        debian_program("ssh")
        debian_program("sshd")
    except InstallError as error:
        return str(error)
    return None


class LocalServer:
    """An SSH server on this host's loopback interface, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        make_keys(folder)
        self.config = folder / "ssh_config"
        self.settings = folder / "sshd_config"
        listen = SERVER.format(folder=folder, port=self.port).replace("0.0.0.0", "127.0.0.1")
        self.settings.write_text(listen, encoding="utf-8")
        self.write_config("here", "127.0.0.1")
        self._process: subprocess.Popen[bytes] | None = None

    def write_config(self, name: str, address: str) -> None:
        """Write the configuration of `ssh`, with this server under one name."""
        text = CLIENT.format(folder=self.folder, port=self.port)
        self.config.write_text(f"{text}Host {name}\n  HostName {address}\n", encoding="utf-8")

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        command = [debian_program("sshd"), "-D", "-e", "-f", str(self.settings)]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            time.sleep(0.02)
        raise AssertionError(f"no SSH server answers at port {self.port}")

    def stop(self) -> None:
        """End the server and the connections that it has accepted."""
        if self._process is not None:
            # Connections have sessions of their own, so the process group does not hold them.
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for pid in (*map(int, children), self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def local_ssh_server(folder: Path) -> Iterator[LocalServer]:
    """Run an SSH server on the loopback interface."""
    server = LocalServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def make_keys(folder: Path) -> None:
    """Make the keys of a server and of its user in a new folder, and the list of known hosts."""
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    Path("/run/sshd").mkdir(exist_ok=True)  # The server's own folder, which its Debian service makes.
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    kind, key, *_ = (folder / "host.pub").read_text(encoding="utf-8").split()
    (folder / "known_hosts").write_text(f"* {kind} {key}\n", encoding="utf-8")


@contextmanager
def ssh_servers(
    sky: Sky, machines: Sequence[str], folder: Path, *, jump: str | None = None, enter: bool = True
) -> Iterator[Path]:
    """Run an SSH server on each machine; yield the configuration of `ssh` for them, by their names.

    With `jump`, they are reached through that machine. If `enter`, its server is entered from this host; otherwise
    `ssh` must run in a machine of the sky.
    """
    make_keys(folder)
    server = debian_program("sshd")
    settings, client = folder / "sshd_config", folder / "ssh_config"
    settings.write_text(SERVER.format(folder=folder, port=PORT), encoding="utf-8")
    entries = [CLIENT.format(folder=folder, port=PORT)]
    for name in machines:
        way = "" if jump is None or name == jump else f"  ProxyJump {jump}\n"
        entries.append(f"Host {name}\n  HostName {sky.machines[name].address}\n{way}")
    if jump is not None and enter:
        # The server speaks on its standard input and output: this host has no route into a sky.
        command = shlex.join(sky.command(jump, [server, "-i", "-f", str(settings)]))
        entries.append(f"Host {jump}\n  HostName {sky.machines[jump].address}\n  ProxyCommand {command}\n")
    client.write_text("".join(entries), encoding="utf-8")
    with ExitStack() as stack:
        for name in machines:
            log = stack.enter_context(open(folder / f"{name}.log", "wb"))
            running = sky.popen(name, [server, "-D", "-e", "-f", str(settings)], stderr=log)
            stack.callback(running.wait)
            stack.callback(running.kill)
        for name in machines:
            words = [sys.executable, "-c", WAIT, sky.machines[name].address, str(PORT)]
            sky.run(name, words, check=True, timeout=2 * START_S)
        yield client
