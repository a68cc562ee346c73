"""The client is killed at every call to EC2 in turn. Nothing is left that an empty state folder does not see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_api
from tests.fleet.aws_stage import FLEET, AwsStage
from tests.fleet.worlds import wait_until
from tradewind.fleet.provider import FLEET_TAG

CLIENT = """
import json, sys
from pathlib import Path
from tests.fleet.aws_stage import FLEET, REGION, launch, order
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import make_provider
document, state = json.loads(sys.argv[1])
provider = make_provider(document, "no-binary", FleetJournal(Path(state)))
provider.quota(REGION)
provider.offers([REGION])
machines = launch(provider, order("one"), order("two"))
provider.machines({FLEET_TAG: FLEET})
provider.terminate([machine.id for machine in machines])
print("ended", flush=True)
"""


@contextmanager
def client_of(stage: AwsStage) -> Iterator[subprocess.Popen[str]]:
    argument = json.dumps([stage.document(), str(stage.folder / "state")])
    client = subprocess.Popen([sys.executable, "-c", CLIENT, argument], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        yield client
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


@pytest.mark.slow
def test_a_client_that_is_killed_at_any_call_leaves_nothing_unseen(tmp_path: Path) -> None:
    """It is killed when the call has been done, and its answer is on the way."""
    with aws_api() as cloud, mock.patch.dict(os.environ, KEYS):
        stage = AwsStage(tmp_path, cloud)
        with client_of(stage) as client:
            assert client.stdout is not None and client.stdout.readline() == "ended\n"
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
