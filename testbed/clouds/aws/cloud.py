"""An emulated account of AWS whose instances really boot."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.clouds.aws import metadata
from testbed.clouds.booter import Booter
from testbed.clouds.metadata import InstanceNetwork
from testbed.clouds.programs import program_server, program_source
from testbed.servers.install import python_environment
from testbed.servers.moto import VERSION
from testbed.servers.process import free_port, spawn, stop_group, temporary_folder, wait_until_answering
from tradewind.fleet.boot.user_data import ProgramSource
from tradewind.model.aws import AwsSettings

__all__ = ["KEYS", "AwsCloud", "Boots", "aws_api", "aws_cloud"]

#: Credentials of the account's root. They are checked only if a test enforces policies.
KEYS = {"AWS_ACCESS_KEY_ID": "root", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_PROGRAM = str(Path(__file__).with_name("moto_ec2.py"))
#: A program for instances that do not boot.
NO_PROGRAM = ProgramSource("x86_64", "http://198.51.100.9/gateway", "0" * 64)
NOTICE = datetime.timedelta(minutes=2)
#: Interval at which new instances are looked for.
LOOK_S = 0.05


@dataclass(frozen=True)
class Boots:
    """Parts that boot instances: the booter, the gateway program, and this host's address in the machines' network.

    `notices` is the folder of the metadata service, if there is one.
    """

    booter: Booter
    source: ProgramSource
    address: str
    notices: Path | None = None


class AwsCloud:
    """The running emulation. `endpoint` is the address of all its services.

    With `boots`, instances boot, and end when their machines do; without, they stay pending until `ran` is called.
    """

    def __init__(self, endpoint: str, boots: Boots | None) -> None:
        self.endpoint, self.boots = endpoint, boots
        self._booter = None if boots is None else boots.booter
        #: Names of machines that never boot (their tag `tradewind-machine`, found in the user data's join document).
        self.never_boots: set[str] = set()
        self._seen: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if boots is not None:
            self._thread.start()

    def document(self, **settings: Any) -> dict[str, Any]:
        """Return the document of a provider that uses this account."""
        programs, home = [NO_PROGRAM.document()], "198.51.100.7/32"
        if self.boots is not None:
            programs, home = [self.boots.source.document()], f"{self.boots.address}/32"
        known = AwsSettings(("us-east-1",), home_cidr=home, endpoint=self.endpoint).document()
        return {"kind": "aws", "programs": programs, **known, **settings}

    def close(self) -> None:
        """Boot no further instances."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def fault(self, operation: str, code: str = "", message: str = "", **more: Any) -> None:
        """Answer the next call of an operation with an error; see `moto_ec2.py` for what else is possible."""
        self._ask("PUT", "faults", [{"operation": operation, "code": code, "message": message, **more}])

    def mend(self) -> None:
        """End all faults, and forget the client tokens and calls so far."""
        self._ask("PUT", "faults", [])
        self._ask("PUT", "forgotten")

    def set(self, **settings: float) -> None:
        """Set the vCPU quota, the time for which new instances are not listed, or whether reads alone heed dry runs."""
        self._ask("PUT", "settings", settings)

    def calls(self) -> list[str]:
        """Return the operations that were called, in order."""
        found: list[str] = self._ask("GET", "calls")
        return found

    def halt_at(self, number: int) -> None:
        """Hold back the answer of the call with this number, until `release` is called."""
        self.set(halt_at=number)

    def release(self) -> None:
        """Send the answer that is held back."""
        self._ask("PUT", "released")

    def instances(self) -> list[dict[str, Any]]:
        """Return all instances, with region, state and user data."""
        found: list[dict[str, Any]] = self._ask("GET", "instances")
        return found

    def ran(
        self, instance_id: str, address: str = "192.0.2.10", state: str = "running", console: str | None = None
    ) -> None:
        """Let an instance run at an address, or be terminated, and write on its console."""
        more = {} if console is None else {"console": console}
        self._ask("PUT", f"instances/{instance_id}", {"state": state, "address": address, **more})

    def end(self, instance_id: str) -> None:
        """End an instance as its own shutdown would."""
        self._ask("PUT", f"instances/{instance_id}", {"state": "terminated"})

    def schedules(self) -> list[str]:
        """Return the names of the scheduler's schedules."""
        found: list[str] = self._ask("GET", "schedules")
        return found

    def run_schedules(self, in_s: float) -> None:
        """Run the schedules that are due by this time from now."""
        self._ask("PUT", "schedules", {"unix_s": time.time() + in_s})

    def reclaim(self, address: str) -> None:
        """Announce to an instance, by its address, that Amazon takes it back in two minutes."""
        assert self.boots is not None and self.boots.notices is not None
        at = datetime.datetime.now(datetime.timezone.utc) + NOTICE
        notice = {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        (self.boots.notices / address).write_text(json.dumps(notice), encoding="utf-8")

    def enforce_policies(self, calls: float = 0) -> None:
        """Check signatures and policies after so many further calls; infinity ends that."""
        # Not a form, urllib's default type: then moto sees no body.
        request = urllib.request.Request(
            f"{self.endpoint}/moto-api/reset-auth", str(calls).encode(), {"Content-Type": "text/plain"}, method="POST"
        )
        urllib.request.urlopen(request).close()

    def _watch(self) -> None:
        assert self._booter is not None
        while not self._closed.wait(LOOK_S):
            with suppress(OSError):
                for instance in self.instances():
                    self._follow(self._booter, instance)

    def _follow(self, booter: Booter, instance: Mapping[str, Any]) -> None:
        name = str(instance["id"])
        machine = booter.machines.get(name)
        if instance["state"] == "terminated":
            self._seen.add(name)
            if machine is not None and not machine.ended.is_set():
                machine.kill()
        elif name not in self._seen:
            self._seen.add(name)
            if any(f'"name": "{late}"' in instance["user_data"] for late in self.never_boots):
                return
            assert instance["shutdown"] == "terminate", "an instance that shuts down would remain, and cost money"
            region = f"aws:{instance['region']}"
            machine = booter.boot(name, instance["user_data"], region, lambda: self._ended(name))
            self.ran(name, machine.address)

    def _ended(self, name: str) -> None:
        assert self._booter is not None
        console = self._booter.machines[name].console
        with suppress(OSError):  # The emulation has ended.
            self._ask("PUT", f"instances/{name}", {"state": "terminated", "console": console})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/testbed/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def aws_api(boots: Boots | None = None) -> Iterator[AwsCloud]:
    """Run the emulation, with instances that boot if `boots` is given."""
    environment = python_environment(f"moto-{VERSION}", [f"moto[server]=={VERSION}"])
    folder, port = temporary_folder("aws"), free_port()
    endpoint = f"http://127.0.0.1:{port}"
    # -I: otherwise the script's folder would come first on the path.
    process = spawn([str(environment / "bin" / "python"), "-I", _PROGRAM, str(port)], folder)
    cloud = None
    try:
        wait_until_answering(process, f"{endpoint}/moto-api/", folder)
        cloud = AwsCloud(endpoint, boots)
        yield cloud
    finally:
        if cloud is not None:
            cloud.close()
        stop_group(process)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def aws_cloud(folder: Path, binary: str) -> Iterator[AwsCloud]:
    """Run the emulation with instances that boot in a private network of this host, and download `binary` there.

    Needs root.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        InstanceNetwork() as lan,
        lan.metadata(metadata.__file__, folder / "metadata") as notices,
        program_server(lan.address, binary, folder / "programs") as url,
        Booter(lan, folder / "machines") as booter,
        aws_api(Boots(booter, program_source(url, binary), lan.address, notices)) as cloud,
    ):
        yield cloud
