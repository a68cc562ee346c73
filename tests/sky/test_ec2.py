"""``--via fleet`` in an emulated EC2: instances boot, enrol, move objects between two stores, and are terminated.

The API is moto's; each instance that it starts really runs its user data, in a namespace on a private network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.clouds.aws import AwsCloud, aws_cloud
from testbed.clouds.booter import BootedMachine
from testbed.clouds.lan import lan_unavailable
from testbed.servers import Server
from testbed.transcript import record_step
from tests.fleet.transfers import ENDS_S, ready, two_stores
from tests.fleet.worlds import wait_until
from tests.sky.cloud_transfer import CloudTransfer
from tradewind.gateway.binary import find_gateway

REGIONS = ("aws:us-east-1", "aws:us-west-2", "aws:eu-west-1")


class Stage(CloudTransfer):
    """A transfer between two regions of the cloud, over a third one."""

    def __init__(
        self,
        cloud: AwsCloud,
        folder: Path,
        stores: tuple[Server, Server],
        regions: tuple[str, str, str] = REGIONS,
        *words: str,
    ) -> None:
        super().__init__(folder, stores, regions, *words)
        assert cloud.boots is not None
        document = cloud.document()
        self.cloud, self.booter = cloud, cloud.boots.booter
        self.program_url, self.home_cidr = document["programs"][0]["url"], document["home_cidr"]
        self.configure()

    def table(self) -> list[str]:
        regions = [region.removeprefix("aws:") for region in self.regions if region.startswith("aws:")]
        return ["[aws]", f'endpoint = "{self.cloud.endpoint}"', f"regions = {regions}"]

    def check_nothing_is_billed(self) -> None:
        assert {one["state"] for one in self.cloud.instances()} == {"terminated"}

    def cloud_states(self) -> list[tuple[str, str]]:
        """Return the region and state of each instance."""
        return [(one["region"], one["state"]) for one in self.cloud.instances()]

    def booted(self, region: str) -> BootedMachine:
        """Return a living machine of a region."""
        return next(one for one in self.machines() if one.region == f"aws:{region}" and not one.ended.is_set())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with aws_cloud(tmp_path / "cloud", find_gateway()) as cloud:
        assert cloud.boots is not None
        with two_stores(cloud.boots.address, tmp_path) as stores, ready(Stage(cloud, tmp_path, stores)) as made:
            yield made


@pytest.mark.slow
def test_a_relay_is_killed_and_replaced_and_nothing_is_left(stage: Stage) -> None:
    running = stage.start()
    stage.check_listed(*REGIONS)
    stage.check_has_no_key()
    record_step("The machine in us-west-2 loses its power.")
    stage.booted("us-west-2").kill()
    done = stage.finish_replaced(running)
    assert any("us-west-2" in hop["name"] and hop["bytes"] > 0 for hop in done.summary["progress"]["hops"])
    stage.check(done)
    phases = [boot["phases_s"] for boot in done.summary["machines"]]
    assert [list(each) for each in phases] == 4 * [["accepted", "running", "booted", "enrolled", "first_byte"]]
    (left,) = done.summary["left"]
    assert (left["left"], left["error"]) == ([], None)
    assert left["looked_for"] == ["instances", "disks", "security groups"]


@pytest.mark.slow
def test_a_spot_machine_that_is_reclaimed_works_until_another_one_takes_its_place(stage: Stage) -> None:
    """Amazon announces it two minutes before the instance is gone."""
    stage.configure(settings=["spot = true"])
    running = stage.start()
    sink = stage.booted("eu-west-1")
    stage.cloud.reclaim(sink.address)
    stage.finish_reclaimed(running, sink)
    assert "the cloud takes the machine back" in sink.console


@pytest.mark.slow
def test_a_spot_machine_that_is_taken_back_while_it_boots_is_replaced_and_the_others_stay(stage: Stage) -> None:
    stage.configure(settings=["spot = true"])
    running = stage.command.start(*stage.words, "--via", "fleet")
    wait_until(lambda: ("eu-west-1", "running") in stage.cloud_states(), ENDS_S)
    stage.booted("eu-west-1").kill()
    done = running.finish()
    notes = [event["message"] for event in done.events if event["event"] == "notice"]
    words = "; another machine is started in its place"
    assert any("did not start" in note and note.endswith(words) for note in notes), notes
    assert len(stage.machines()) == len(stage.regions) + 1
    stage.check(done)
    stage.check_nothing_is_left()


@pytest.mark.slow
def test_machines_of_a_killed_command_are_swept_from_an_empty_state_folder(stage: Stage) -> None:
    stage.sweep_after_a_kill(stage.start())
    assert {one["state"] for one in stage.cloud.instances()} == {"terminated"}
    stage.command.run("fleet", "down").expect(0)


SOLD_OUT = "InsufficientInstanceCapacity", "We currently do not have sufficient capacity in the zone you requested"
QUOTA = "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 4 allows"


@pytest.mark.slow
@pytest.mark.parametrize("refusal", [SOLD_OUT, QUOTA], ids=["sold out", "quota"])
def test_a_relay_that_a_region_refuses_is_planned_around(stage: Stage, refusal: tuple[str, str]) -> None:
    """The other machines have come, and stay. They carry all bytes, and one note says why there are fewer."""
    stage.cloud.fault("RunInstances", *refusal, region="us-west-2", times=1000)
    done = stage.command.run(*stage.words, "--via", "fleet")
    (note,) = (line for line in done.stderr.splitlines() if "replanned without these machines" in line)
    assert refusal[0] in note and "us-west-2" in note and "now 100% direct" in note
    stage.check(done)
    assert {one["region"] for one in stage.cloud.instances()} == {"us-east-1", "eu-west-1"}
    names = sorted(re.findall(r'"name": "(aws-[^"]+)"', one["user_data"])[0] for one in stage.cloud.instances())
    assert names == sorted(set(names)), "each was rented once"


@pytest.mark.slow
@pytest.mark.parametrize("refusal", [SOLD_OUT, QUOTA], ids=["sold out", "quota"])
def test_a_destination_without_machines_ends_the_transfer_in_one_line(stage: Stage, refusal: tuple[str, str]) -> None:
    """Machines have come elsewhere. They are ended."""
    stage.cloud.fault("RunInstances", *refusal, region="eu-west-1", times=1000)
    done = stage.command.run(*stage.words, "--via", "fleet")
    assert done.code == 1 and "Traceback" not in done.stderr
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert refusal[0] in error and "eu-west-1" in error
    stage.check_nothing_is_left()


@pytest.mark.slow
def test_init_doctor_and_a_transfer_begin_without_a_table_of_the_cloud(stage: Stage) -> None:
    """The variables of AWS's own tools name the account and its API. Only the user knows where the program is."""
    document, path = stage.cloud.document(), stage.command.configuration
    stage.command.environment["AWS_ENDPOINT_URL"] = stage.cloud.endpoint
    stage.command.configure("[fleet]", f'home_cidr = "{document["home_cidr"]}"', 'home_rate = "1Mbit/s"')
    done = stage.command.run("init", "--write", *(word for region in REGIONS for word in ("--region", region)))
    assert done.code == 1 and "hint: upload the program, and set program_url to its URL" in done.stderr, done.stderr
    written = path.read_text()
    assert written.endswith('\n[aws]\nregions = ["us-east-1", "us-west-2", "eu-west-1"]\n')
    assert "BAD  machines       aws: machines in a cloud cannot download" in stage.command.run("doctor").stdout
    url = document["programs"][0]["url"]
    path.write_text(written.replace("[fleet]", f'[fleet]\nprogram_url = "{url}"'))
    assert "the smallest policy for aws:" in stage.command.run("init").expect(0).stdout
    doctor = stage.command.run("doctor").expect(0).stdout
    assert doctor.count("ok   machines       aws:") == len(REGIONS) and "BAD" not in doctor
    running = stage.command.start(*stage.words)
    stage.check(running.finish())
    again = stage.command.run(*stage.words, "--dry-run").expect(0)
    assert "note: the machines usually start in " in again.stderr and " (learned, " in again.stderr
