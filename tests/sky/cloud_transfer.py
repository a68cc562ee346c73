"""A transfer through machines of an emulated cloud, which really boot on this host."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from testbed.clouds.booter import BootedMachine, Booter
from testbed.drive import Running
from tests.fleet.transfers import ENDS_S, SECRET, Transfer, files_in, holding
from tests.fleet.worlds import wait_until

__all__ = ["CloudTransfer"]

TOKEN = re.compile(r'"token_hex": ?"(\w+)"')


class CloudTransfer(Transfer, ABC):
    """A transfer between two regions of a cloud."""

    #: Where the machines run.
    booter: Booter
    #: Where they download their program, and this host in their network.
    program_url: str
    home_cidr: str

    @abstractmethod
    def table(self) -> list[str]:
        """Return the cloud's table of the configuration."""

    @abstractmethod
    def check_nothing_is_billed(self) -> None:
        """Check that the cloud would bill nothing any more."""

    def configure(self, *tables: str, settings: Sequence[str] = ()) -> None:
        """Write the configuration: the cloud's table with further settings, the fleet's, and others."""
        self.command.configure(
            *self.table(),
            *settings,
            "[fleet]",
            f'program_url = "{self.program_url}"',
            f'home_cidr = "{self.home_cidr}"',
            'home_rate = "1Mbit/s"',
            *tables,
        )

    def check_has_no_key(self) -> None:
        """Check that nothing on the running machines, in their user data and consoles, or in the command's state folder
        has the stores' secret key, and that nothing but the user data has a token with which a machine joins.
        """
        super().check_has_no_key()
        machines = [machine for machine in self.machines() if not machine.ended.is_set()]
        folders = [machine.path(name) for machine in machines for name in ("/run", "/tmp", "/var/lib")]
        files = [path for folder in folders for path in files_in(folder)]
        pids = [pid for machine in machines for pid in machine.pids()]
        processes = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")]
        given = list(self.booter.folder.glob("*.user-data"))
        consoles = list(self.booter.folder.glob("*.console"))
        assert files and processes and given and consoles
        assert holding(SECRET, [*files, *processes, *given, *consoles]) == []
        others = [path for path in files if path.name != "user-data"]
        tokens = {token for path in given for token in TOKEN.findall(path.read_text(encoding="utf-8"))}
        assert len(tokens) == len(given)
        for token in tokens:
            assert holding(token, [*others, *processes, *consoles, *files_in(self.command.state)]) == []

    def machines(self) -> list[BootedMachine]:
        """Return all machines that were ever booted."""
        return list(self.booter.machines.values())

    def finish_reclaimed(self, running: Running, machine: BootedMachine) -> None:
        """Check that a machine which the cloud takes back works until another one is in its place, and then the end."""
        running.wait_for(lambda event: "is about to end" in event.get("message", ""))
        done = running.finish()
        wait_until(machine.ended.is_set, ENDS_S)
        self.check(done)

    def check_nothing_is_left(self) -> None:
        wait_until(lambda: all(machine.ended.is_set() for machine in self.machines()), ENDS_S)
        super().check_nothing_is_left()
        self.check_nothing_is_billed()
