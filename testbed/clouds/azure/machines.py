"""The machines of the stand-in: each VM that its API runs is booted, and killed when the API deletes it.

A machine runs its custom data as cloud-init does on Debian and Ubuntu: text that begins with `#!` is a script, which
runs as root. It reaches the metadata service at Azure's address, and trusts the certificate of the stand-in's API.
"""

from __future__ import annotations

import base64
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from testbed.clouds.azure.server import METADATA, AzureApi, azure_api
from testbed.clouds.booter import END_S, BootedMachine, Booter
from testbed.clouds.lan import Lan, Place
from testbed.clouds.programs import program_server, program_source
from testbed.servers.process import ServerError

__all__ = ["AzureCloud", "azure_cloud"]


class _Places:
    """Places in a private network at the addresses that the API has given to its machines."""

    def __init__(self, lan: Lan) -> None:
        self._lan = lan

    def place(self, region: str) -> Place:
        """Return the place with an address; the booter's word for it is the region."""
        return Place(f"m{region.rpartition('.')[2]}", region)

    def attach(self, place: Place, pid: int) -> None:
        """Join a machine to the network and to the metadata service."""
        self._lan.attach(place, pid)
        host = METADATA.partition(":")[0]
        _run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "route", "add", host, "dev", "eth0")

    def release(self, place: Place) -> None:
        """Do nothing: the API knows which addresses are free."""


class AzureCloud:
    """The API with its machines. `never_boot` has beginnings of names of machines that do not boot, `environment` has
    environment variables of others, by the beginning of their names.
    """

    def __init__(self, api: AzureApi, booter: Booter, program: dict[str, Any]) -> None:
        self.api, self.booter, self._program = api, booter, program
        self.never_boot: set[str] = set()
        self.environment: dict[str, dict[str, str]] = {}
        self._trust = Path(str(api.server.ca_file)).read_text(encoding="ascii")
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="machines of Azure", daemon=True)
        self._keeper.start()

    def document(self, **changes: Any) -> dict[str, Any]:
        """Return the document of a provider here, whose machines find their program."""
        return self.api.document(**{"programs": [self._program], **changes})

    def machine(self, name: str) -> BootedMachine:
        """Return the machine of a gateway's name, once it boots: the API says that it runs shortly before."""
        deadline_s = time.monotonic() + END_S
        while True:
            booted = list(self.booter.machines.items())
            for key, machine in booted:
                if key.startswith(f"tradewind-{name}-"):
                    return machine
            if time.monotonic() > deadline_s:
                raise LookupError(f"no machine of {name} has booted")
            time.sleep(0.02)

    def stop(self) -> None:
        """Follow the API no longer."""
        self._stopping.set()
        self._keeper.join()

    def _keep(self) -> None:
        """Boot and kill machines, as the API says."""
        known: set[str] = set()
        while not self._stopping.is_set():
            with suppress(OSError, ServerError):
                listed = self.api.ask(f"machines?known={quote(','.join(sorted(known)))}", method="GET") or []
                wanted = {one["name"]: one for one in listed}
                for name in known - wanted.keys():
                    if name in self.booter.machines:
                        self.booter.machines[name].kill()
                for name in wanted.keys() - known:
                    if not any(name.startswith(beginning) for beginning in self.never_boot):
                        self._boot(wanted[name])
                known = set(wanted)

    def _boot(self, machine: dict[str, Any]) -> None:
        name, text = machine["name"], base64.b64decode(machine["custom_data"]).decode()
        trust = f"cat > /run/ca.pem << 'END'\n{self._trust}END\nexport CURL_CA_BUNDLE=/run/ca.pem\n"
        script = trust + text if text.startswith("#!") else "exit 0\n"
        for beginning, variables in self.environment.items():
            if name.startswith(beginning):
                self.booter.environment[machine["address"]] = variables  # The booter's word for it is the region.
        self.booter.boot(name, script, machine["address"], on_end=lambda: self._stopped(name))

    def _stopped(self, name: str) -> None:
        """Tell the API that a machine has shut itself down. It knows nothing of one that it has deleted."""
        with suppress(OSError, ServerError):
            self.api.ask(f"stopped?name={name}", "")


@contextmanager
def azure_cloud(folder: Path, binary: str) -> Iterator[AzureCloud]:
    """Run the stand-in, with a private network for its machines, and a server with their program."""
    with Lan() as lan:
        inside = f"--net={lan.netns}"
        _run("nsenter", inside, "ip", "address", "add", METADATA.partition(":")[0], "dev", "lan")
        _run("nsenter", inside, "ip", "route", "add", f"{lan.prefix}0/24", "dev", "lan")
        with (
            azure_api(lan.address, lan.netns) as api,
            program_server(lan.address, binary, folder / "programs") as url,
            Booter(_Places(lan), folder / "machines") as booter,
        ):
            api.change(public_net=lan.prefix.removesuffix("."), consoles=str(folder / "machines"))
            cloud = AzureCloud(api, booter, program_source(url, binary).document())
            try:
                yield cloud
            finally:
                cloud.stop()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
