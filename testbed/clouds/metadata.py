"""A private network whose machines reach a metadata service at the address that all clouds use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.clouds.lan import Lan, Place
from testbed.servers.process import spawn, stop_group

__all__ = ["ADDRESS", "InstanceNetwork"]

ADDRESS = "169.254.169.254"


class InstanceNetwork(Lan):
    """A private network with a metadata service."""

    def __enter__(self) -> InstanceNetwork:
        """Make the network."""
        super().__enter__()
        return self

    def attach(self, place: Place, pid: int) -> None:
        """Join a machine to the network and to the metadata service."""
        super().attach(place, pid)
        _ip(f"/proc/{pid}/ns/net", "route", "add", ADDRESS, "dev", "eth0")

    @contextmanager
    def metadata(self, program: str, folder: Path) -> Iterator[Path]:
        """Run the metadata service, a program that gets the folder of its notices; yield that folder."""
        notices = folder / "notices"
        notices.mkdir(parents=True)
        _ip(self.netns, "address", "add", ADDRESS, "dev", "lan")
        _ip(self.netns, "route", "add", f"{self.prefix}0/24", "dev", "lan")
        process = spawn(["nsenter", f"--net={self.netns}", sys.executable, "-I", program, str(notices)], folder)
        try:
            yield notices
        finally:
            stop_group(process)


def _ip(netns: str, *words: str) -> None:
    subprocess.run(["nsenter", f"--net={netns}", "ip", *words], check=True)
