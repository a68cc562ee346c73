"""The client is killed at every call to EC2 in turn. Nothing is left that an empty state folder does not see."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_api
from tests.fleet.aws_stage import AwsStage
from tests.fleet.orders import FLEET
from tests.fleet.orphan_client import Clients, clients_of
from tests.fleet.worlds import wait_until
from tradewind.fleet.provider import FLEET_TAG


@pytest.mark.slow
def test_a_client_that_is_killed_at_any_call_leaves_nothing_unseen(tmp_path: Path) -> None:
    """It is killed when the call has been done, and its answer is on the way."""
    with (
        aws_api() as cloud,
        mock.patch.dict(os.environ, KEYS),
        clients_of("tests.fleet.aws_stage", "boto3") as clients,
    ):
        whole = AwsStage(tmp_path / "whole", cloud)
        assert clients.start(whole.document(), whole.folder / "state", "one", "two").exit_code() == 0
        calls = cloud.calls()
        assert {"RunInstances", "CreateSecurityGroup", "TerminateInstances", "DeleteSecurityGroup"} <= set(calls)
        assert whole.provider().leftovers() == ()
        killed = 0
        for number, operation in enumerate(calls):
            cloud.mend()
            cloud.halt_at(number)
            stage = AwsStage(tmp_path / str(number), cloud)
            killed += kill_at(stage, clients, number)
            cloud.release()
            check_that_nothing_is_unseen(stage, f"killed at call {number}, {operation}")
        # Concurrent calls come in another order each time; the last ones may not be made.
        assert killed > len(calls) * 0.8


def kill_at(stage: AwsStage, clients: Clients, number: int) -> bool:
    """Kill a client at one of its calls, counted from 0. Return False if it did not make so many."""
    client = clients.start(stage.document(), stage.folder / "state", "one", "two")
    wait_until(lambda: len(stage.cloud.calls()) > number or client.has_ended())
    return client.kill()


def check_that_nothing_is_unseen(stage: AwsStage, when: str) -> None:
    stranger = stage.provider()
    found = stranger.leftovers()
    machines = {left.id.rpartition("/")[2] for left in found if left.kind == "machine"}
    assert machines == set(stage.living()), when
    assert {left.tags[FLEET_TAG] for left in found} <= {FLEET}, when
    assert [one.refusal for one in stranger.terminate([left.id for left in found]) if one.refusal] == [], when
    assert stage.living() == [] and stranger.leftovers() == (), when
