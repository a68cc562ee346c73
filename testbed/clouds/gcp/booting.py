"""The inside of the stand-in's instances: machines that really run their startup script."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.clouds.booter import BootedMachine, Booter
from testbed.clouds.gcp.records import Guest, Instance
from tradewind.fleet.provider import NAME_TAG

__all__ = ["Boots"]

#: A guest that nobody gave a startup script.
_IDLE = "#!/bin/sh\nexec sleep 86400\n"
SCRIPT_S = 90.0
"""Timeout of a shutdown script. Google ends the VM before."""


@dataclass
class Boots:
    """Boots instances. Those whose machine's name is in `never` run, but their startup script does not."""

    booter: Booter
    notices: Path | None = None
    """Folder of the notices of the metadata service, if there is one."""
    never: set[str] = field(default_factory=set)

    def __call__(self, instance: Instance) -> Guest:
        """Boot an instance."""
        script = instance.metadata("startup-script") or _IDLE
        if instance.labels.get(NAME_TAG) in self.never:
            script = _IDLE
        region = f"gcp:{instance.zone.rpartition('-')[0]}"
        machine = self.booter.boot(instance.name, script, region)
        return _Booted(machine, self.notices, instance.metadata("shutdown-script"))


@dataclass
class _Booted:
    machine: BootedMachine
    notices: Path | None
    shutdown_script: str | None

    @property
    def address(self) -> str:
        return self.machine.address

    def alive(self) -> bool:
        return not self.machine.ended.is_set()

    def console(self) -> str:
        return self.machine.console

    def press_power_button(self) -> None:
        """Run the shutdown script as Google's guest agent does, then end the system."""
        threading.Thread(target=self._shut_down, name=f"shut down {self.machine.id}", daemon=True).start()

    def _shut_down(self) -> None:
        init = self.machine.init_pid
        if init is None:
            return
        if self.shutdown_script is not None:
            words = ["nsenter", f"--target={init}", "--mount", "--pid", "--net", "sh", "-c", self.shutdown_script]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(words, capture_output=True, timeout=SCRIPT_S, check=False)
        with suppress(ProcessLookupError):
            os.kill(init, signal.SIGTERM)

    def announce_preemption(self) -> None:
        """Let the metadata service say it."""
        assert self.notices is not None
        (self.notices / self.machine.address).touch()

    def pull_plug(self) -> None:
        self.machine.kill()
