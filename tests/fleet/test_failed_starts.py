"""A fleet that does not start leaves nothing, even if a provider has made what it refused, and lists it late."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_api
from testbed.clouds.azure import azure_api
from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import ComputeEngine
from tests.fleet.aws_stage import AwsStage
from tests.fleet.azure_stage import Stage as AzureStage
from tests.fleet.fake_provider import FakeProvider
from tests.fleet.gcp_stage import GcpStage
from tests.fleet.worlds import plan_between
from tradewind.errors import GatewayError, ProviderRefused
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import (
    Accountable,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    Provider,
    Quota,
    Refusal,
)
from tradewind.fleet.readiness import Readiness
from tradewind.gateway.binary import find_gateway
from tradewind.model.latch import Latch

LATE_S = 1.5


class Misleading:
    """A provider that makes all machines, and answers the orders of some with a refusal.

    The list of machines shows these too late for any fleet, however slow; the list of what is left after `late_s`.
    """

    def __init__(self, inner: Provider, refusals: Mapping[str, Refusal], late_s: float = LATE_S) -> None:
        assert isinstance(inner, Accountable)
        self.inner, self.refusals, self.settles_s = inner, refusals, late_s
        self.kind, self.leaves = inner.kind, inner.leaves
        self._made_s: dict[str, float] = {}
        """Times of launches that were answered with a refusal, by the machine's name."""

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        made = self.inner.launch(orders)
        assert all(of.machine is not None for of in made), made
        self._made_s |= {of.order.name: time.monotonic() for of in made if of.order.name in self.refusals}
        return [self._answer(of) for of in made]

    def _answer(self, made: LaunchResult) -> LaunchResult:
        refusal = self.refusals.get(made.order.name)
        return made if refusal is None else LaunchResult(made.order, refusal=refusal)

    def _is_listed(self, name: str) -> bool:
        return time.monotonic() - self._made_s.get(name, 0.0) >= self.settles_s

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        return tuple(one for one in self.inner.machines(tags) if one.name not in self._made_s)

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        return tuple(
            one for one in self.inner.left_of(fleet_id) if self._is_listed(one.tags.get("tradewind-machine", ""))
        )

    def document(self) -> dict[str, Any]:
        return self.inner.document()

    def home(self, region: str) -> Home:
        return self.inner.home(region)

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        return self.inner.offers(regions)

    def quota(self, region: str) -> Quota | None:
        return self.inner.quota(region)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        return self.inner.terminate(ids, grace_s=grace_s)

    def leftovers(self) -> tuple[Leftover, ...]:
        return self.inner.leftovers()

    def host(self, machine: Machine) -> Host | None:
        return self.inner.host(machine)


@contextmanager
def in_aws(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Provider]:
    with aws_api() as cloud, mock.patch.dict(os.environ, KEYS):
        yield AwsStage(folder, cloud).provider(home_cidr="127.0.0.1/32")


@contextmanager
def in_gcp(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Provider]:
    with ComputeEngine(Cloud()) as api:
        yield GcpStage(folder, api).provider()


@contextmanager
def in_azure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with azure_api() as api:
        yield AzureStage(api, FleetJournal(folder / "azure"), monkeypatch).provider()


Opened = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Provider]]
CLOUDS: dict[Opened, str] = {in_aws: "aws:us-east-1", in_gcp: "gcp:us-central1", in_azure: "azure:westeurope"}
PERMISSION = Refusal("permission", "not authorised")


def failed_start(provider: Provider, region: str, folder: Path) -> tuple[list[str], ProviderRefused]:
    """Return the lines of a fleet that cannot be launched, and its error."""
    lines: list[str] = []
    journal = FleetJournal(folder / "fleets")
    with pytest.raises(ProviderRefused) as caught:
        Fleet(provider, journal, plan_between(region, region), find_gateway(), purpose="a test", report=lines.append)
    return lines, caught.value


@pytest.mark.parametrize("opened", CLOUDS, ids=lambda opened: opened.__name__)
def test_what_was_made_although_it_was_refused_is_ended_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    with opened(tmp_path, monkeypatch) as cloud:
        lines, error = failed_start(Misleading(cloud, {"sink": PERMISSION}), CLOUDS[opened], tmp_path)
        assert error.kind == "permission" and "not authorised" in str(error)
        (line,) = lines
        assert "did not start; removed what its provider had made: machine " in line
        assert cloud.leftovers() == ()


@pytest.mark.parametrize("opened", CLOUDS, ids=lambda opened: opened.__name__)
def test_of_a_failed_start_that_left_nothing_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Opened
) -> None:
    with opened(tmp_path, monkeypatch) as cloud:
        provider = Misleading(cloud, {}, late_s=0.0)
        monkeypatch.setattr(
            provider, "launch", lambda orders: [LaunchResult(order, refusal=PERMISSION) for order in orders]
        )
        assert failed_start(provider, CLOUDS[opened], tmp_path)[0] == []


class EndedHost:
    """Access to a machine that a cloud has taken back while it booted."""

    def ending(self, timeout_s: float) -> str | None:
        return "its instance was terminated"

    def log_tail(self, bytes_max: int) -> str:
        return "tradewind: booted\n\n"


def test_a_machine_that_ends_while_it_boots_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log alone does not say that it has ended."""
    provider, machine = FakeProvider(random.Random(1), failing=0.0), Machine("id", "one", "site:a")
    monkeypatch.setattr(provider, "host", lambda _: EndedHost())
    readiness = Readiness(provider, lambda: (machine,), Latch())
    with pytest.raises(GatewayError) as caught:
        readiness.wait([machine], time.monotonic() + 60.0, lambda *_: None)
    assert str(caught.value) == "gateway one did not start: its instance was terminated: tradewind: booted"
