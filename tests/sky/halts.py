"""Transfers whose command is killed at one of its calls to an API. The machines really run."""

from __future__ import annotations

import shutil
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from testbed.clouds.aws import AwsCloud, aws_cloud
from testbed.clouds.azure import AzureCloud, azure_cloud
from testbed.clouds.gcp import GcpCloud, gcp_cloud
from testbed.clouds.gcp.server import Call
from testbed.clouds.lan import lan_unavailable
from testbed.drive import Running
from tests.fleet.transfers import ENDS_S, Transfer, two_stores
from tests.fleet.worlds import wait_until
from tests.sky import test_clouds, test_compute_engine, test_ec2
from tests.sky.cloud_transfer import CloudTransfer
from tests.sky.world import write_files
from tradewind.fleet.azure.names import MACHINES
from tradewind.gateway.binary import find_gateway

__all__ = ["AwsHalts", "CloudHalts", "Halts", "halts_of"]

VOLUME_BYTES = 1_000_000
#: So little above the plan's cost that the leases of the machines are a minute or two long.
CEILINGS = {"aws": "0.0090USD", "gcp": "0.0090USD", "azure": "0.0180USD", "site": "0.0200USD"}
#: Longer than any lease, for clouds whose clock can be set.
FORWARD_S = 25 * 3600.0


class Halts(ABC):
    """A transfer between two regions, of which an API holds back the answer of a call."""

    def __init__(self, stage: Transfer) -> None:
        self.stage, self._count = stage, 0
        write_files(stage.source, VOLUME_BYTES)
        source, _, destination = stage.regions
        links = stage.folder / "links.csv"
        links.write_text(f"src,dst,gbps\n{source},{destination},1\n", encoding="utf-8")
        stage.command.run("catalog", "import", links).expect(0)
        self.words = [*stage.words, "--via", "fleet"]
        self.words[self.words.index("--max-cost") + 1] = CEILINGS[source.partition(":")[0]]

    @abstractmethod
    def halt_at(self, number: int | None) -> None:
        """Forget the calls so far, and hold back the answer of the one with this number."""

    @abstractmethod
    def calls(self) -> list[str]:
        """Return the calls since then."""

    @abstractmethod
    def release(self) -> None:
        """Send the answer that is held back, and wait until the API has carried out all calls."""

    @abstractmethod
    def living_regions(self) -> list[str]:
        """Return the region of each machine that is billed."""

    @abstractmethod
    def check_nothing_runs(self) -> None:
        """Check that no machine runs, and that no provider has anything that it would bill."""

    @contextmanager
    def state_folder(self) -> Iterator[None]:
        """Run commands with a state folder of their own, which knows nothing."""
        self._count += 1
        environment = self.stage.command.environment
        before = environment.get("TRADEWIND_STATE_DIR")
        environment["TRADEWIND_STATE_DIR"] = str(self.stage.folder / f"empty {self._count}")
        try:
            yield
        finally:
            del environment["TRADEWIND_STATE_DIR"]
            if before is not None:
                environment["TRADEWIND_STATE_DIR"] = before

    @contextmanager
    def another_home(self) -> Iterator[None]:
        """Run commands with a state folder that knows the rates of the links, and no fleet."""
        with self.state_folder():
            folder = Path(self.stage.command.environment["TRADEWIND_STATE_DIR"])
            shutil.copytree(self.stage.command.state / "catalog", folder / "catalog")
            yield

    def start(self) -> Running:
        """Start the transfer."""
        return self.stage.command.start(*self.words)

    def whole_run(self) -> list[str]:
        """Let a transfer come to its end, and return its calls."""
        self.halt_at(None)
        with self.another_home():
            self.start().finish().expect(0)
        calls = self.calls()
        self.stage.check_nothing_is_left()
        return calls

    def kill_at(self, number: int) -> str | None:
        """Kill the command at one of its calls, counted from 0, and return the call. Return None if it does not make
        so many.
        """
        self.halt_at(number)
        with self.another_home():
            running = self.start()
            wait_until(lambda: len(self.calls()) > number or running.process.poll() is not None)
            running.signal(signal.SIGKILL)
            code = running.finish().code
        self.release()
        if code == -signal.SIGKILL:
            return self.calls()[number]
        assert code == 0
        return None

    def check_all_are_listed(self, when: str) -> None:
        """Check that a stranger with an empty state folder sees each machine."""

        def is_listed() -> bool:  # A machine may end while they are listed.
            listed = self.stage.command.run("fleet", "list", "--everywhere").expect(0).stdout.splitlines()
            regions = [line.split()[1] for line in listed]
            return Counter(regions) == Counter(self.living_regions())

        with self.state_folder():
            try:
                wait_until(is_listed, 10.0)
            except AssertionError:
                listed = self.stage.command.run("fleet", "list", "--everywhere").stdout
                raise AssertionError(f"{when}: {self.living_regions()} run, listed are:\n{listed}") from None

    def sweep_after_kills(self, points: Sequence[int]) -> None:
        """Kill the command at each of these calls in turn, and let a stranger see and end what it leaves."""
        killed = 0
        for point in points:
            call = self.kill_at(point)
            killed += call is not None
            when = f"killed at call {point}, {call}"
            self.check_all_are_listed(when)
            self.sweep(when)
        # Concurrent calls and polls differ each time; the last ones may not be made.
        assert killed >= len(points) * 0.7

    def sweep(self, when: str) -> None:
        """Check that a stranger with an empty state folder ends everything."""
        with self.state_folder():
            swept = self.stage.command.run("fleet", "sweep").expect(0)
            assert swept.stdout.splitlines()[-1] == "nothing is left", f"{when}:\n{swept.stdout}"
        self.check_nothing_runs()


class CloudHalts(Halts):
    """A transfer between two regions of an emulated cloud, whose machines really boot."""

    stage: CloudTransfer

    def let_time_pass(self) -> None:
        """Let more time pass than a lease lasts, where that need not be waited for."""
        return

    def check_nothing_runs(self) -> None:
        wait_until(lambda: all(machine.ended.is_set() for machine in self.stage.machines()), ENDS_S)
        self.stage.check_nothing_is_billed()


class AwsHalts(CloudHalts):
    """EC2 carries out the call."""

    cloud: AwsCloud

    def halt_at(self, number: int | None) -> None:
        self.cloud.mend()
        self.cloud.halt_at(-1 if number is None else number)

    def calls(self) -> list[str]:
        return self.cloud.calls()

    def release(self) -> None:
        self.cloud.release()

    def living_regions(self) -> list[str]:
        found = self.cloud.instances()
        return [f"aws:{one['region']}" for one in found if one["state"] in ("pending", "running")]


class GcpHalts(CloudHalts):
    """Compute Engine carries out the call once the command has been killed."""

    cloud: GcpCloud

    def halt_at(self, number: int | None) -> None:
        api, self._first, self._released = self.cloud.api, len(self.cloud.api.calls), threading.Event()
        released, first = self._released, self._first

        def hold(_: Call) -> None:
            if number is not None and len(api.calls) > first + number:
                released.wait()

        api.on_call = hold

    def calls(self) -> list[str]:
        return [call.method for call in self.cloud.api.calls[self._first :]]

    def release(self) -> None:
        self.cloud.api.on_call = lambda _: None
        self._released.set()
        wait_until(self.cloud.api.is_quiet)

    def living_regions(self) -> list[str]:
        there = [one for one in list(self.cloud.engine.instances.values()) if one.status != "TERMINATED"]
        return [f"gcp:{one.zone.rpartition('-')[0]}" for one in there]

    def let_time_pass(self) -> None:
        self.cloud.engine.forward(FORWARD_S)


class AzureHalts(CloudHalts):
    """Azure carries out the call."""

    cloud: AzureCloud

    def halt_at(self, number: int | None) -> None:
        self._first = len(self.cloud.api.calls())
        self.cloud.api.fault(*([] if number is None else [{"nth": number + 1, "mode": "hold-after"}]))

    def calls(self) -> list[str]:
        return [" ".join(call) for call in self.cloud.api.calls()[self._first :]]

    def release(self) -> None:
        self.cloud.api.fault()

    def living_regions(self) -> list[str]:
        names = self.cloud.api.resources().get(MACHINES, ())
        regions = [region for region in self.stage.regions if region.startswith("azure:")]
        return [region for name in names for region in regions if region.replace(":", "-") in name]


@contextmanager
def halts_of(kind: str, folder: Path) -> Iterator[CloudHalts]:
    """Run a cloud and the stores of a transfer. In the end none of its processes may live."""
    if reason := lan_unavailable():
        pytest.skip(reason)
    binary = find_gateway()
    with ExitStack() as opened:
        made: CloudHalts
        if kind == "aws":
            aws = opened.enter_context(aws_cloud(folder / "cloud", binary))
            assert aws.boots is not None
            stores = opened.enter_context(two_stores(aws.boots.address, folder))
            regions = ("aws:us-east-1", "site:none", "aws:eu-west-1")
            made = AwsHalts(test_ec2.Stage(aws, folder, stores, regions, "--max-vms", "1"))
            made.cloud = aws
        elif kind == "gcp":
            gcp = opened.enter_context(gcp_cloud(folder / "cloud", binary))
            stores = opened.enter_context(two_stores(gcp.address, folder))
            regions = ("gcp:us-central1", "site:none", "gcp:europe-west4")
            made = GcpHalts(test_compute_engine.Stage(gcp, folder, stores, regions))
            made.cloud = gcp
        else:
            azure = opened.enter_context(azure_cloud(folder / "cloud", binary))
            stores = opened.enter_context(two_stores(test_clouds.home_of(azure), folder))
            regions = ("azure:westeurope", "site:none", "azure:eastus")
            made = AzureHalts(test_clouds.Stage(azure, folder, stores, regions))
            made.cloud = azure
        yield made
        made.stage.command.wait_until_alone()
