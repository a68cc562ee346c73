"""Real SSH servers on the machines of a sky, behind a jump host, and a configuration of `ssh` that reaches them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.debian import debian_program
from testbed.servers import InstallError
from tradewind.sky.running import Sky

__all__ = ["ssh_servers", "sshd_unavailable"]

PORT = 2222
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


def sshd_unavailable() -> str | None:
    """Return why no SSH server can run here, or None. Installs Debian's server if it is missing."""
    try:
        debian_program("ssh")
        debian_program("sshd")
    except InstallError as error:
        return str(error)
    return None


@contextmanager
def ssh_servers(
    sky: Sky, machines: Sequence[str], folder: Path, *, jump: str | None = None, enter: bool = True
) -> Iterator[Path]:
    """Run an SSH server on each machine; yield the configuration of `ssh` for them, by their names.

    With `jump`, they are reached through that machine. If `enter`, its server is entered from this host; otherwise
    `ssh` must run in a machine of the sky.
    """
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    server = debian_program("sshd")
    Path("/run/sshd").mkdir(exist_ok=True)  # The server's own folder, which its Debian service makes.
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    settings, client = folder / "sshd_config", folder / "ssh_config"
    settings.write_text(SERVER.format(folder=folder, port=PORT), encoding="utf-8")
    kind, key, *_ = (folder / "host.pub").read_text(encoding="utf-8").split()
    (folder / "known_hosts").write_text(f"* {kind} {key}\n", encoding="utf-8")
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
        yield client
