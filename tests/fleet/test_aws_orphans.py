"""The client is killed at every call to EC2 in turn. Nothing is left that an empty state folder does not see."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_api
from tests.fleet.aws_stage import AwsStage
from tests.fleet.orders import FLEET
from tests.fleet.orphan_client import orphan_client, wait_until_done
from tests.fleet.worlds import wait_until
from tradewind.fleet.provider import FLEET_TAG


def client_of(stage: AwsStage) -> AbstractContextManager[subprocess.Popen[str]]:
    return orphan_client("tests.fleet.aws_stage", stage.document(), stage.folder / "state")


@pytest.mark.slow
def test_a_client_that_is_killed_at_any_call_leaves_nothing_unseen(tmp_path: Path) -> None:
    """It is killed when the call has been done, and its answer is on the way."""
    with aws_api() as cloud, mock.patch.dict(os.environ, KEYS):
        stage = AwsStage(tmp_path, cloud)
        with client_of(stage) as client:
            wait_until_done(client)
        calls = cloud.calls()
        assert {"RunInstances", "CreateSecurityGroup", "TerminateInstances", "DeleteSecurityGroup"} <= set(calls)
        assert stage.provider().leftovers() == ()
    for number, operation in enumerate(calls):
        with aws_api() as cloud, mock.patch.dict(os.environ, KEYS):
            stage = AwsStage(tmp_path / str(number), cloud)
            cloud.halt_at(number)
            with client_of(stage) as client:
                wait_until(lambda: len(cloud.calls()) > number or client.poll() is not None)  # noqa: B023
                client.send_signal(signal.SIGKILL)
                client.wait()
            cloud.release()
            check_that_nothing_is_unseen(stage, f"killed at call {number}, {operation}")


def check_that_nothing_is_unseen(stage: AwsStage, when: str) -> None:
    stranger = stage.provider()
    found = stranger.leftovers()
    machines = {left.id.rpartition("/")[2] for left in found if left.kind == "machine"}
    assert machines == set(stage.living()), when
    assert {left.tags[FLEET_TAG] for left in found} <= {FLEET}, when
    assert [one.refusal for one in stranger.terminate([left.id for left in found]) if one.refusal] == [], when
    assert stage.living() == [] and stranger.leftovers() == (), when
