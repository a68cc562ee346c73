"""The machines that jobs of the soak rent: a stand-in provider of some SSH hosts, which are this host.

The service launches, leases and ends them by the code for any provider. A machine is a folder on its host with the
process of a gateway, so one that outlives its job is seen from outside.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from testbed.servers.process import ServerError, temporary_folder
from testbed.sshd import local_ssh_server, sshd_unavailable

__all__ = ["REGIONS", "USD_PER_HOUR", "StandInProvider"]

REGIONS = ("site:near", "site:far")
USD_PER_HOUR = 3.6
LOOK_S = 0.2
HOSTS_PER_REGION = 3
"""More than jobs run at once: the machine of a killed server takes up its host until the next server ends it."""


class StandInProvider:
    """Hosts in two regions, until it is closed. Raises ServerError if no SSH server can run here."""

    def __init__(self, folder: Path) -> None:
        if reason := sshd_unavailable():
            raise ServerError(reason)
        self._hosts, self._undo = folder / "hosts", contextlib.ExitStack()
        # The sockets of `ssh` need a short path.
        short = temporary_folder("soak-ssh")
        try:
            server = self._undo.enter_context(local_ssh_server(short / "ssh"))
            with server.config.open("a") as config:
                config.write("Host near* far*\n  HostName 127.0.0.1\n")
            self.configuration_folder = folder / "configuration"
            (self.configuration_folder / "tradewind").mkdir(parents=True)
            lines = ["[fleet]", 'home_rate = "1Mbit/s"', "[ssh]", f'config = "{server.config}"']
            for region, number in itertools.product(REGIONS, range(HOSTS_PER_REGION)):
                name = f"{region.partition(':')[2]}{number}"
                lines += ["[[ssh.hosts]]", f'name = "{name}"', f'region = "{region}"', 'address = "127.0.0.1"']
                lines += [f'folder = "{self._hosts / name}"', f"usd_per_hour = {USD_PER_HOUR}"]
            (self.configuration_folder / "tradewind" / "config.toml").write_text("\n".join([*lines, ""]))
        except BaseException:
            self._undo.close()
            raise

    def close(self) -> None:
        """Stop the SSH server."""
        self._undo.close()

    def machines(self) -> dict[str, int | None]:
        """Return each machine that there is, with the process of its gateway if that lives."""
        found = {}
        for folder in self._hosts.glob("*/machines/*"):
            with contextlib.suppress(OSError, ValueError):
                found[f"{folder.parent.parent.name}/{folder.name}"] = _living(folder)
        return found

    def left_after(self, seconds: float) -> list[str]:
        """Wait until no machine is left, with a maximum of `seconds`; return those that are."""
        end_s = time.monotonic() + seconds
        while (left := self.machines()) and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        return [f"machine {name}, process {pid}" for name, pid in sorted(left.items())]


def _living(folder: Path) -> int | None:
    """Return the process of a machine; None if it has none, or that has ended."""
    file = folder / "pid"
    text = file.read_text() if file.exists() else ""
    return int(text) if text and os.path.exists(f"/proc/{int(text)}") else None
