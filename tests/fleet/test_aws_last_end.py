"""With an `end_role`, Amazon's scheduler ends an instance that nobody else ends."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_api
from tests.fleet.aws_stage import REGION, AwsStage, launch, order
from tests.fleet.orders import FLEET, OWNER
from tests.fleet.test_aws_policy import Account, lacking, without
from tradewind.cli.orphans import ending_orphans
from tradewind.engine.engine import Engine
from tradewind.errors import ConfigError
from tradewind.fleet.aws.instances import run_request
from tradewind.fleet.aws.policy import policy
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Checking, Keepable, Lease, Provider, Refusal
from tradewind.model.aws import AwsSettings, read_aws
from tradewind.model.records import replace

ROLE = "arn:aws:iam::123456789012:role/tradewind-end"
SETTINGS = AwsSettings(("us-east-1",), end_role=ROLE)
HOUR_S = 3600.0


@pytest.fixture(scope="module")
def cloud() -> Iterator[AwsCloud]:
    with aws_api() as made, mock.patch.dict(os.environ, KEYS):
        yield made


@pytest.fixture
def stage(cloud: AwsCloud, tmp_path: Path) -> AwsStage:
    made = AwsStage(tmp_path, cloud)
    made.settings["end_role"] = ROLE
    made.clear()
    cloud.run_schedules(1e9)  # Of the tests before.
    return made


def refusal(provider: Provider) -> Refusal:
    (result,) = provider.launch([order()])
    assert result.machine is None and result.refusal is not None
    return result.refusal


def test_an_instance_that_never_boots_is_ended_though_its_client_is_gone(stage: AwsStage) -> None:
    launch(stage.provider(hours_max=2))
    stage.cloud.run_schedules(2 * HOUR_S - 60)
    assert len(stage.living()) == 1
    stage.cloud.run_schedules(2 * HOUR_S + 60)
    assert stage.living() == [] and stage.cloud.schedules() == []


def test_a_lease_is_never_cut(stage: AwsStage) -> None:
    launch(stage.provider(hours_max=1), replace(order(), lease=Lease(3 * 3600, OWNER)))
    stage.cloud.run_schedules(3 * HOUR_S - 60)
    assert len(stage.living()) == 1


def test_the_end_of_a_machine_deletes_its_schedule(stage: AwsStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider)
    assert stage.cloud.schedules() == [f"tradewind-{machine.id.rpartition('/')[2]}"]
    assert provider.terminate([machine.id])[0].refusal is None
    assert stage.cloud.schedules() == []


def test_a_schedule_that_is_gone_or_may_not_be_deleted_is_no_error(stage: AwsStage) -> None:
    provider = stage.provider()
    first, second = launch(provider, order("one"), order("two"))
    stage.cloud.run_schedules(0)
    assert stage.provider(end_role=None).terminate([first.id])[0].refusal is None
    assert provider.terminate([first.id])[0].refusal is None
    stage.cloud.fault("DeleteSchedule", "AccessDeniedException")
    assert provider.terminate([second.id])[0].refusal is None
    assert stage.living() == []


def test_a_repeated_launch_schedules_what_the_first_could_not(stage: AwsStage) -> None:
    """Its client died between the two calls."""
    (machine,) = launch(stage.provider(end_role=None))
    assert stage.cloud.schedules() == []
    for _ in range(2):
        (again,) = launch(stage.provider())
        assert again.id == machine.id
        assert len(stage.cloud.schedules()) == 1


def test_a_client_that_dies_before_the_schedule_leaves_an_instance_that_ends_itself(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch request itself has all that the instance needs: a timer that runs first, and what a shutdown does."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    sent: list[dict[str, Any]] = []

    def noted(*given: Any, **words: Any) -> dict[str, Any]:
        sent.append(run_request(*given, **words))
        return sent[-1]

    monkeypatch.setattr("tradewind.fleet.providers.aws.run_request", noted)
    monkeypatch.setattr("tradewind.fleet.providers.aws.schedule_end", die)
    with pytest.raises(Killed):
        stage.provider().launch([order()])
    assert len(stage.living()) == 1 and stage.cloud.schedules() == []
    assert sent[0]["InstanceInitiatedShutdownBehavior"] == "terminate"
    script = sent[0]["UserData"]
    assert "boot_s=" in script and script.index("watch_lease &") < script.index('say "booted"')
    monkeypatch.undo()
    with mock.patch.dict(os.environ, KEYS):
        (left,) = [one for one in stage.provider().leftovers() if one.kind == "machine"]
        assert stage.provider().terminate([left.id])[0].refusal is None


def test_the_next_command_ends_an_instance_that_never_boots_and_has_no_schedule(
    stage: AwsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its client died between the launch and the schedule."""
    journal = FleetJournal(stage.folder / "state")
    journal.open(FLEET, "job j1", stage.document(), {"one": REGION})
    journal.launched(FLEET, "one", REGION)
    launch(stage.provider(end_role=None))
    journal.give_back(FLEET)
    args = Namespace(quiet=False, json=False)
    with Engine(state_dir=str(stage.folder / "state"), gateway="no-binary") as engine, ending_orphans(args, engine):
        pass
    waiting, ended = "note: waiting ", f"note: ended 1 machine of fleet {FLEET}, whose command was killed"
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if not line.startswith(waiting)] == [ended]
    assert stage.living() == [] and list(journal.records()) == []


@pytest.mark.parametrize(
    ("code", "kind", "needs"),
    [
        ("AccessDeniedException", "permission", "scheduler:CreateSchedule"),
        ("ServiceQuotaExceededException", "quota", None),
        ("ThrottlingException", "throttled", None),
        ("InternalServerException", "transient", None),
    ],
)
def test_a_machine_whose_end_cannot_be_scheduled_is_ended(
    stage: AwsStage, code: str, kind: str, needs: str | None
) -> None:
    stage.cloud.fault("CreateSchedule", code, "no", times=3)  # boto3 itself tries three times.
    provider = stage.provider()
    found = refusal(provider)
    assert (found.kind, found.action) == (kind, needs)
    assert stage.living() == []
    stage.cloud.fault("Nothing")
    launch(provider)  # The order can be repeated.
    assert len(stage.cloud.schedules()) == 1


def test_a_role_that_the_scheduler_may_not_take_on_is_a_clear_error(stage: AwsStage) -> None:
    found = refusal(stage.provider(end_role="arn:aws:iam::123456789012:role/no-such-role"))
    assert found.kind == "bad request" and "must allow AWS EventBridge Scheduler to assume the role" in found.reason
    assert stage.living() == []


def test_without_a_role_the_scheduler_is_not_called(stage: AwsStage) -> None:
    provider = stage.provider(end_role=None)
    (machine,) = launch(provider)
    provider.terminate([machine.id])
    assert not {"CreateSchedule", "DeleteSchedule"} & set(stage.cloud.calls())


def test_machines_are_kept_no_longer_than_they_live(stage: AwsStage) -> None:
    provider = stage.provider(public_address=True, hours_max=3)
    assert isinstance(provider, Keepable) and provider.kept_s_max("aws:us-east-1") == 3 * HOUR_S


def test_settings_are_checked() -> None:
    assert read_aws({"end_role": ROLE, "hours_max": 3}, "c").hours_max == 3
    for table in ({"end_role": "tradewind-end"}, {"hours_max": 0}, {"hours_max": 721}, {"hours_max": True}):
        with pytest.raises(ConfigError):
            read_aws(table, "c")


@pytest.fixture
def account(stage: AwsStage) -> Iterator[Account]:
    made = Account(stage.cloud)
    with mock.patch.dict(os.environ, made.keys):
        yield made
    stage.cloud.enforce_policies(float("inf"))


def test_the_policy_suffices_and_each_missing_action_is_named(account: Account, stage: AwsStage) -> None:
    def ended(document: dict[str, Any]) -> None:
        account.allow(document)
        provider = stage.provider()
        (machine,) = launch(provider)
        assert provider.terminate([machine.id])[0].refusal is None

    ended(json.loads(policy(SETTINGS)))
    assert stage.cloud.schedules() == []
    for action in ("scheduler:CreateSchedule", "iam:PassRole"):
        account.allow(without(action, SETTINGS))
        assert refusal(stage.provider()).action == action
    ended(without("scheduler:DeleteSchedule", SETTINGS))
    account.allow(json.loads(policy(SETTINGS)))
    assert lacking(stage.provider()) == []
    provider = stage.provider()
    assert isinstance(provider, Checking)
    unknown = {one.action for one in provider.permissions() if one.granted is None}
    assert {"scheduler:CreateSchedule", "scheduler:DeleteSchedule", "iam:PassRole"} <= unknown
