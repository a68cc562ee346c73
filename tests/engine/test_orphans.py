"""The next transfer ends the rented machines of commands that were killed, also those that never booted."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_jobs import REQUEST, SPEC
from tests.fleet.fake_provider import FakeProvider
from tradewind.cli import orphans as words
from tradewind.cli.main import main
from tradewind.engine import fleets as engine_fleets
from tradewind.engine import gateways
from tradewind.engine.diagnosis import check_installation
from tradewind.engine.engine import Engine
from tradewind.engine.gateways import end_abandoned
from tradewind.engine.job_control import JobControl
from tradewind.engine.orphans import OrphanEnds, orphaned_fleets
from tradewind.engine.runs import RunStarter
from tradewind.errors import GatewayError, JobBusy, UsageError
from tradewind.fleet import ending
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.owner import HEARTBEAT_STALE_S, here
from tradewind.fleet.patience import OUTAGE_S
from tradewind.fleet.provider import (
    FLEET_TAG,
    CallRefused,
    Ended,
    LaunchOrder,
    Lease,
    Leftover,
    Machine,
    Provider,
    Refusal,
)
from tradewind.fleet.providers import make_provider
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine
from tradewind.model.latch import Latch
from tradewind.model.plan import local_plan

RENTED = {"kind": "gcp"}
TAKEN = {"kind": "mixed", "members": [{"name": "one", "regions": ["site:a"], "provider": RENTED}]}
OWN = {
    "kind": "mixed",
    "members": [
        {"name": "one", "regions": ["site:a"], "provider": {"kind": "ssh"}},
        {"name": "two", "regions": ["gcp:us-east1"], "provider": RENTED},
    ],
}


class Cloud(FakeProvider):
    """Rents machines until `answers` is False."""

    answers = True

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        if not self.answers:
            raise CallRefused(Refusal("permission", "no credentials", "log in"))
        return super().machines(tags)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    made = Cloud(random.Random(1), failing=0.0)
    monkeypatch.setattr(engine_fleets, "make_provider", lambda *_: made)
    monkeypatch.setattr(ending, "make_provider", lambda *_: made)

    def provider(document: Mapping[str, Any], *rest: Any, **more: Any) -> Provider:
        return made if document == RENTED else make_provider(document, *rest, **more)

    monkeypatch.setattr(gateways, "make_provider", provider)
    return made


def killed(folder: Path, cloud: Cloud, purpose: str = "job j1", document: Mapping[str, Any] = RENTED) -> str:
    """Record a fleet, launch its machine, and forget both as a killed client does."""
    journal, fleet = FleetJournal(folder), new_fleet_id()
    journal.open(fleet, purpose, document, {"one": "site:a"})
    journal.launched(fleet, "one", "site:a")
    cloud.launch([LaunchOrder(fleet, "one", "site:a", f"key-{fleet}", 1, Lease(60, "owner"))])
    journal.give_back(fleet)
    return fleet


def run(folder: Path, **changes: Any) -> None:
    """Do what a command does that works for no time."""
    args = Namespace(**{"quiet": False, "json": False, **changes})
    with Engine(state_dir=str(folder), gateway="no-binary") as engine, words.ending_orphans(args, engine):
        pass


@pytest.mark.parametrize("document", [RENTED, TAKEN])
def test_a_machine_that_never_booted_ends_with_the_next_command(
    tmp_path: Path, cloud: Cloud, capsys: pytest.CaptureFixture[str], document: Mapping[str, Any]
) -> None:
    fleet = killed(tmp_path, cloud, document=document)
    run(tmp_path)
    assert cloud.living == {} and list(FleetJournal(tmp_path).records()) == []
    assert capsys.readouterr().err == f"note: ended 1 machine of fleet {fleet}, whose command was killed\n"
    run(tmp_path)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("changes", [{"quiet": True}, {"json": True}])
def test_a_quiet_command_ends_it_without_a_word(
    tmp_path: Path, cloud: Cloud, capsys: pytest.CaptureFixture[str], changes: dict[str, bool]
) -> None:
    killed(tmp_path, cloud)
    run(tmp_path, **changes)
    assert cloud.living == {} and capsys.readouterr() == ("", "")


def test_a_failure_is_a_warning_that_names_the_command_that_tries_again(
    tmp_path: Path, cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = killed(tmp_path, cloud)
    cloud.answers = False
    run(tmp_path, quiet=True)
    assert capsys.readouterr().err.splitlines() == [
        f"warning: fleet {fleet}, whose command was killed, may still have machines: no credentials",
        f"hint: `tradewind fleet down {fleet}` ends it",
    ]
    assert len(cloud.living) == 1


def test_fleets_in_use_warm_ones_and_hosts_of_the_user_are_left_alone(tmp_path: Path, cloud: Cloud) -> None:
    journal, used = FleetJournal(tmp_path), new_fleet_id()
    journal.open(used, "job j2", RENTED, {"one": "site:a"})
    warm = killed(tmp_path, cloud, "warm")
    WarmBook(journal).keep(warm, Keeping(300, time.time() + 9000, {"one": WarmMachine("site:a")}))
    journal.leased(warm, "one", 600)
    killed(tmp_path, cloud, document=OWN)
    killed(tmp_path, cloud, document={"kind": "local"})
    with Engine(state_dir=str(tmp_path), gateway="no-binary") as engine:
        assert orphaned_fleets(engine.control) == []
    run(tmp_path)
    assert len(cloud.living) == 3
    journal.give_back(used)


def test_a_rented_machine_that_was_no_longer_wanted_is_ended_though_only_own_hosts_are(
    tmp_path: Path, cloud: Cloud
) -> None:
    """A job that leaves a cloud records first what it still wants, and ends its machines there afterwards."""
    journal, fleet = FleetJournal(tmp_path), killed(tmp_path, cloud, document=OWN)
    journal.launched(fleet, "two", "gcp:us-east1")
    cloud.launch([LaunchOrder(fleet, "two", "gcp:us-east1", f"key-two-{fleet}", 1, Lease(60, "owner"))])
    assert journal.intent(fleet).machines == {"one": "site:a"}
    run(tmp_path)
    assert cloud.living == {}


def change(folder: Path, fleet: str, **changes: Any) -> None:
    """Change fields of a fleet's record."""
    for column, value in changes.items():
        FleetJournal(folder).database.write(f"UPDATE fleets SET {column} = ? WHERE id = ?", (value, fleet))


def test_a_fleet_without_its_lock_is_left_alone_while_its_command_may_live(tmp_path: Path, cloud: Cloud) -> None:
    """The folders of fleets can be removed by hand while a command has the lock of one."""
    fleet = killed(tmp_path, cloud)
    shutil.rmtree(tmp_path / "fleets")
    run(tmp_path)
    assert len(cloud.living) == 1
    change(tmp_path, fleet, heartbeat_unix_s=time.time() - HEARTBEAT_STALE_S)
    run(tmp_path)
    assert cloud.living == {}


@pytest.mark.parametrize("name", ["here", "copied.example"])
def test_after_a_reboot_it_is_ended_but_a_copy_of_the_host_only_names_it(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A host that was made from the disk of another one has its host id, and a record that is not kept up there."""
    monkeypatch.setattr("tradewind.fleet.owner._host", lambda: "0123456789abcdef")
    fleet = killed(tmp_path, cloud)
    owner = {**here().document(), "boot": "earlier", **({} if name == "here" else {"host_name": name})}
    change(tmp_path, fleet, owner=json.dumps(owner), heartbeat_unix_s=time.time() - HEARTBEAT_STALE_S)
    run(tmp_path)
    said = capsys.readouterr().err.splitlines()
    if name == "here":
        assert cloud.living == {} and said == [f"note: ended 1 machine of fleet {fleet}, whose command was killed"]
    else:
        assert len(cloud.living) == 1 and said == [
            f"warning: fleet {fleet} of host {name}, whose command was killed, may still have machines",
            f"hint: `tradewind fleet down {fleet}` ends it",
        ]


def test_a_machine_that_outlives_its_warm_fleet_is_ended(
    tmp_path: Path, cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, journal = killed(tmp_path, cloud, "warm"), FleetJournal(tmp_path)
    WarmBook(journal).keep(fleet, Keeping(300, time.time() - 1, {"one": WarmMachine("site:a")}))
    journal.leased(fleet, "one", -1)
    run(tmp_path)
    assert capsys.readouterr().err.startswith(f"note: ended 1 machine of warm fleet {fleet}, whose lease has expired\n")
    assert cloud.living == {}


def test_a_command_that_fails_does_not_wait(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(tmp_path, cloud)
    hanging = threading.Event()
    monkeypatch.setattr(Cloud, "machines", lambda *_: hanging.wait(60) and ())
    try:
        args = Namespace(quiet=False, json=False)
        with (
            Engine(state_dir=str(tmp_path), gateway="no-binary") as engine,
            pytest.raises(KeyboardInterrupt),
            words.ending_orphans(args, engine),
        ):
            raise KeyboardInterrupt
    finally:
        hanging.set()
        for thread in threading.enumerate():
            if thread.name == "orphaned fleets":
                thread.join()
    assert capsys.readouterr().err == ""


def test_an_acceleration_is_only_named_and_not_while_it_may_serve_connections(
    tmp_path: Path, cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = killed(tmp_path, cloud, "acceleration a1")
    FleetJournal(tmp_path).leased(fleet, "one", 600)
    run(tmp_path)
    assert capsys.readouterr().err == ""
    FleetJournal(tmp_path).leased(fleet, "one", -1)
    run(tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        f"warning: fleet {fleet} of acceleration a1, whose command was killed, may still have machines",
        f"hint: `tradewind fleet down {fleet}` ends it",
    ]
    assert len(cloud.living) == 1


def test_a_provider_that_does_not_answer_does_not_hold_the_command(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, hanging = killed(tmp_path, cloud), threading.Event()
    monkeypatch.setattr(Cloud, "machines", lambda *_: hanging.wait(60) and ())
    monkeypatch.setattr("tradewind.engine.orphans.ORPHANS_WAIT_S", 0.1)
    monkeypatch.setattr("tradewind.engine.orphans.UNNOTICED_WAIT_S", 0.1)
    try:
        run(tmp_path)
    finally:
        hanging.set()
        for thread in threading.enumerate():
            if thread.name == "orphaned fleets":
                thread.join()
    assert capsys.readouterr().err.splitlines() == [
        f"note: waiting up to 0.1 s until the machines of {fleet} have ended",
        f"warning: fleet {fleet}, whose command was killed, may still have machines: its provider has not answered",
        f"hint: `tradewind fleet down {fleet}` ends it",
    ]


def test_doctor_names_them_and_how_to_end_them(tmp_path: Path, cloud: Cloud) -> None:
    def findings() -> list[tuple[str, str | None]]:
        found = check_installation(
            gateway="no-binary",
            state_dir=str(tmp_path),
            settings_file=str(tmp_path / "none"),
            unknown_variables=(),
            access=None,
        )
        return [(one.what, one.mend) for one in found if one.name == "fleets"]

    assert findings() == []
    fleet = killed(tmp_path, cloud)
    assert findings() == [(f"machines of {fleet} may still run, but no command uses them", "tradewind fleet down")]
    run(tmp_path)
    assert findings() == []


def test_transfers_and_fleet_up_end_them_and_a_dry_run_does_not(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("tradewind.cli.fleet.bring_up", lambda *_: 0)
    (tmp_path / "data").write_text("content")
    copy = ["cp", str(tmp_path / "data"), str(tmp_path / "copy")]
    killed(tmp_path / "state", cloud)
    assert main([*copy, "--dry-run"]) == 0 and len(cloud.living) == 1
    assert main(copy) == 0 and cloud.living == {}
    killed(tmp_path / "state", cloud)
    assert main(["fleet", "up", "site:a"]) == 0 and cloud.living == {}


def test_a_fleet_that_another_command_has_ended_meanwhile_is_not_ended_again(tmp_path: Path, cloud: Cloud) -> None:
    """A command may wait for a provider that does not answer, for each of the fleets that it has found."""
    killed(tmp_path, cloud)
    with Engine(state_dir=str(tmp_path), gateway="no-binary") as engine:
        found = orphaned_fleets(engine.control)
        assert [end.machines for end in engine.fleets.end_unclaimed(found)] == [1]
        cloud.answers = False
        assert list(engine.fleets.end_unclaimed(found)) == []


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """End fleets before the command continues, so that a test need not wait for their thread."""

    class EndsAtOnce(OrphanEnds):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            self.wait(60.0)

    monkeypatch.setattr("tradewind.engine.orphans.OrphanEnds", EndsAtOnce)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("action", ["resume", "attach"])
def test_resuming_or_adopting_a_job_ends_the_machines_of_others(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    """The run itself ends those of its own job, whose cost it must know first."""
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    own, other = killed(tmp_path, cloud, "job j1"), killed(tmp_path, cloud, "job j2")
    record = SimpleNamespace(verb="cp", source="a", destinations=("b",))
    job = SimpleNamespace(id="j1", require_resumable=lambda: record, resume=lambda **_: None)
    monkeypatch.setattr(Engine, "job", lambda *_: job)
    monkeypatch.setattr("tradewind.cli.jobs._agreed", lambda *_: None)
    monkeypatch.setattr("tradewind.cli.follow.run_with_question", lambda *_, **__: 0)
    monkeypatch.setattr("tradewind.cli.attach.attach", lambda _, __, adopt: adopt())
    assert main(["jobs", action, "j1"]) == 0
    assert capsys.readouterr().err == f"note: ended 1 machine of fleet {other}, whose command was killed\n"
    assert [record.id for record in FleetJournal(tmp_path).records()] == [own]


def test_a_measurement_ends_them(tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    killed(tmp_path, cloud)
    measurement = SimpleNamespace(run=lambda: (_ for _ in ()), measured=())
    monkeypatch.setattr(Engine, "measure", lambda *_, **__: measurement)
    monkeypatch.setattr("tradewind.cli.measure._announce", lambda *_: None)
    assert main(["measure", "--sky", "world.json"]) == 0 and cloud.living == {}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("resumes", [False, True])
def test_an_acceleration_reports_them_at_once_and_ends_its_own_itself(
    tmp_path: Path,
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    resumes: bool,
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    other, former = killed(tmp_path, cloud), killed(tmp_path, cloud, "acceleration a1")
    said = []

    def refused(*_: Any) -> None:
        said.append(capsys.readouterr().err.splitlines())
        raise UsageError("no machines")

    for name in ("acceleration_at_sites", "resumed_acceleration"):
        monkeypatch.setattr(f"tradewind.engine.acceleration_up.{name}", refused)
    (tmp_path / "flows.toml").write_text("")
    assert main(["accelerate", "up", *(["--resume", "a1"] if resumes else [str(tmp_path / "flows.toml")])]) == 2
    named = [
        f"warning: fleet {former} of acceleration a1, whose command was killed, may still have machines",
        f"hint: `tradewind fleet down {former}` ends it",
    ]
    ended = f"note: ended 1 machine of fleet {other}, whose command was killed"
    assert said == [[*([] if resumes else named), ended]] and len(cloud.living) == 1


def test_a_job_waits_until_another_command_has_ended_its_machines(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it is resumed while they still run, and the rest of their time is never charged."""
    fleet = killed(tmp_path, cloud)
    (record,) = FleetJournal(tmp_path).records()
    listing, asked = threading.Event(), threading.Event()

    def slowly(self: Cloud, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        asked.set()
        assert listing.wait(30)
        return FakeProvider.machines(self, tags)

    monkeypatch.setattr(Cloud, "machines", slowly)
    with Engine(state_dir=str(tmp_path), gateway="no-binary") as engine:
        ends = OrphanEnds(engine.fleets, [record])
        assert asked.wait(30)
        threading.Timer(0.3, listing.set).start()
        end_abandoned(FleetJournal(tmp_path), "no-binary", "j1")
        assert cloud.living == {} and list(FleetJournal(tmp_path).records()) == []
        assert [end.id for end in ends.wait(30)[0]] == [fleet]


def test_a_job_whose_machines_another_command_cannot_end_is_busy(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, other = killed(tmp_path, cloud), FleetJournal(tmp_path)
    monkeypatch.setattr("tradewind.engine.gateways.OTHER_END_S", 0.1)
    assert other.claim(fleet)
    with pytest.raises(JobBusy, match=f"another command is ending the machines of fleet {fleet}"):
        end_abandoned(FleetJournal(tmp_path), "no-binary", "j1")
    other.give_back(fleet)
    end_abandoned(FleetJournal(tmp_path), "no-binary", "j1")
    assert cloud.living == {}


@pytest.mark.parametrize("fails", ["its answer", "the second listing"])
def test_a_machine_that_a_killed_command_has_ended_was_launched(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Its launch was not answered, and the cloud has forgotten it since, so only the former command has seen it."""
    fleet = killed(tmp_path, cloud)
    monkeypatch.setattr(Cloud, "settles_s", 0.01)

    def end(self: Cloud, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        ended = FakeProvider.terminate(self, ids, grace_s=grace_s)
        if fails == "its answer":
            raise CallRefused(Refusal("permission", "the command was killed"))
        self.answers = False
        return ended

    with monkeypatch.context() as killing:
        killing.setattr(Cloud, "terminate", end)
        with pytest.raises((CallRefused, GatewayError)):
            end_abandoned(FleetJournal(tmp_path), "no-binary", "j1")
    cloud.answers = True
    assert cloud.living == {}
    assert end_abandoned(FleetJournal(tmp_path), "no-binary", "j1").unlaunched == {fleet: frozenset()}
    assert [name for name, _, _ in FleetJournal(tmp_path).lives(fleet)] == ["one"]


def test_a_start_that_waits_for_another_command_notices_that_it_is_to_stop(tmp_path: Path, cloud: Cloud) -> None:
    fleet, other, stopping = killed(tmp_path, cloud), FleetJournal(tmp_path), Latch()
    assert other.claim(fleet)
    timer = threading.Timer(0.2, stopping.set)
    timer.start()
    with pytest.raises(GatewayError, match=f"stopped while another command was ending the machines of fleet {fleet}"):
        end_abandoned(FleetJournal(tmp_path), "no-binary", "j1", stopping)
    timer.join()
    other.give_back(fleet)
    stopping.set()
    assert end_abandoned(FleetJournal(tmp_path), "no-binary", "j1", stopping).left == []
    assert cloud.living == {}


def test_a_job_waits_for_another_command_as_long_as_that_may_try() -> None:
    assert gateways.OTHER_END_S > OUTAGE_S


class Leaving(Cloud):
    """Has made an address for a machine that was not ordered. `keeps` is whether it refuses to remove it."""

    leaves, keeps, settles_s = ("addresses",), False, 0.0

    def __init__(self) -> None:
        super().__init__(random.Random(1), failing=0.0)
        self.addresses = ["address-1"]

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        return tuple(Leftover(one, "address", "site:a", {FLEET_TAG: fleet_id}) for one in self.addresses)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        if not self.keeps:
            self.addresses = [one for one in self.addresses if one not in ids]
        return super().terminate(ids, grace_s=grace_s)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_job_removes_what_its_killed_run_has_left_besides_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    cloud = Leaving()
    cloud.keeps = keeps
    for module in (engine_fleets, ending, gateways):
        monkeypatch.setattr(module, "make_provider", lambda *_: cloud)
    fleet = killed(tmp_path, cloud)
    left = end_abandoned(FleetJournal(tmp_path), "no-binary", "j1").left
    assert cloud.living == {}
    assert [(one.fleet, one.left) for one in left] == ([(fleet, ("address address-1",))] if keeps else [])


def test_a_resumed_job_knows_from_its_start_what_its_killed_run_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end before its starter does anything else, and its end records what is left."""
    cloud = Leaving()
    cloud.keeps = True
    for module in (ending, gateways):
        monkeypatch.setattr(module, "make_provider", lambda *_: cloud)
    control = JobControl(state_dir=str(tmp_path), gateway="no-binary")
    control.store.make_folder("j1")
    control.store.create("j1", SPEC, REQUEST, None)
    killed(tmp_path, cloud)
    given: dict[str, Any] = {}
    monkeypatch.setattr("tradewind.engine.runs.RunningJob", lambda *_, **more: given.update(more))
    monkeypatch.setattr(RunStarter, "_deploy_first", lambda _: (None, SPEC, local_plan()))
    control.resume("j1")
    assert [one.left for one in given["remains"]] == [("address address-1",)]
