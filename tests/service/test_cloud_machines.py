"""Jobs of the service on machines of two clouds: from AWS to Google, as tenants submit them.

The APIs are stand-ins. Each machine that they start really runs its user data, in a namespace on a private network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds.aws import AwsCloud, Boots
from testbed.clouds.aws.cloud import aws_api
from testbed.clouds.booter import Booter
from testbed.clouds.gcp import GcpCloud
from testbed.clouds.gcp.booting import Boots as GcpBoots
from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import ComputeEngine
from testbed.clouds.lan import Lan, lan_unavailable
from testbed.clouds.programs import program_server, program_source
from tests.fleet.worlds import wait_until
from tests.service.machine_world import machine_lines
from tests.service.rented_world import (
    OPERATOR_KEY,
    PATIENCE_S,
    SLOW_BYTES_PER_S,
    VOLUME_BYTES,
    RentedWorld,
    Tenant,
    body,
    cancelled,
    check_done,
    check_invoice,
    check_ledger,
    check_no_key_is_shown,
    check_taken_over,
    job_of,
    machines_have_no_word_of,
    moved,
    moving_job,
    rented_world,
    secrets_of,
    shown_to,
    submit,
    until_moving,
)
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow
SOURCE, SINK = "aws:us-east-1", "gcp:europe-west4"
NAMES = ("alder", "birch")
DATA_PORT = 7443


@dataclass
class Stage:
    """Both clouds, and the service."""

    aws: AwsCloud
    gcp: GcpCloud
    booter: Booter
    world: RentedWorld
    tenants: list[Tenant]

    def billed(self) -> list[str]:
        """Return what the clouds themselves bill."""
        instances = [str(one["id"]) for one in self.aws.instances() if one["state"] != "terminated"]
        return [*instances, *map(str, self.gcp.engine.billed())]

    def launched(self, region: str) -> int:
        """Return how many machines the cloud of a region has made. One that ended at once has not booted."""
        if region == SOURCE:
            return len(self.aws.instances())
        calls = [call for call in self.gcp.api.calls if call.method == "regionInstances.bulkInsert"]
        return len({call.query.get("requestId") for call in calls})

    def check_nothing_is_left(self) -> None:
        """Check that no machine lives, by the service, by the operator's command, and by the clouds."""
        wait_until(lambda: self.booter.living() == [])
        self.world.check_nothing_is_left()
        wait_until(lambda: self.billed() == [])


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    gateway = find_gateway()
    with ExitStack() as held:
        lan = held.enter_context(Lan())
        url = held.enter_context(program_server(lan.address, gateway, tmp_path / "programs"))
        booter = held.enter_context(Booter(lan, tmp_path / "machines"))
        source = program_source(url, gateway)
        aws = held.enter_context(aws_api(Boots(booter, source, lan.address)))
        boots = GcpBoots(booter)
        gcp = GcpCloud(held.enter_context(ComputeEngine(Cloud(boot=boots))), boots, source, lan.address)
        lines = configuration(aws, gcp, url, lan.address)
        made = rented_world(tmp_path, lan.address, (SOURCE, SINK), lines, NAMES)
        world, tenants = held.enter_context(made)
        yield Stage(aws, gcp, booter, world, tenants)


def configuration(aws: AwsCloud, gcp: GcpCloud, program_url: str, home: str) -> list[str]:
    """Return the lines of the operator's configuration."""
    google = gcp.document()
    return [
        *("[aws]", f'endpoint = "{aws.endpoint}"', 'regions = ["us-east-1"]'),
        *("[gcp]", f'project = "{google["project"]}"', f'endpoint = "{google["endpoint"]}"'),
        'regions = ["europe-west4"]',
        *("[fleet]", f'program_url = "{program_url}"', f'home_cidr = "{home}/32"', 'home_rate = "1Mbit/s"'),
    ]


def test_a_job_between_two_clouds_is_proven_and_its_invoice_is_its_ledger(stage: Stage) -> None:
    """The tenant sees no key of the operator, and no machine has a key in a file or a process's environment."""
    world, tenant = stage.world, stage.tenants[0]
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S * 3)
        until_moving(client, job_id)
        assert sorted(machine.region for machine in stage.booter.living()) == [SOURCE, SINK]
        machines_have_no_word_of(stage.booter.living(), [*OPERATOR_KEY.values(), *secrets_of(tenant)])
        done = check_done(client, tenant, job_id, "copy")
        assert {line["what"].split(" in ")[1] for line in machine_lines(done)} == {SOURCE, SINK}
        check_invoice(client, [done])
        stage.check_nothing_is_left()
        check_no_key_is_shown(world, tenant, client, job_id)


@pytest.mark.parametrize("when", ["machines start", "bytes move"])
def test_the_next_server_ends_the_machines_of_a_killed_one_and_finishes_its_job(stage: Stage, when: str) -> None:
    world, tenant = stage.world, stage.tenants[0]
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
        if when == "bytes move":
            until_moving(client, job_id)
        else:
            wait_until(lambda: len(stage.booter.machines) > 0, PATIENCE_S)
    world.server.kill()
    killed_unix_s = time.time()
    assert stage.booter.living()
    world.server.start()
    with world.client(tenant) as client:
        done = check_taken_over(client, tenant, job_id, "copy")
        again = client.post("/v1/jobs", json=body("copy", limit_bytes_per_s=SLOW_BYTES_PER_S), headers=key("copy"))
        assert (again.status_code, again.json()["id"]) == (200, job_id)
        check_machines_are_counted(stage, machine_lines(done), killed_unix_s)
        check_invoice(client, [done])
        stage.check_nothing_is_left()


def test_a_cancelled_job_ends_its_machines_and_is_charged_for_them(stage: Stage) -> None:
    world, tenant = stage.world, stage.tenants[0]
    with world.client(tenant) as client:
        job_id = moving_job(client)
        ended = cancelled(client, job_id)
        stage.check_nothing_is_left()
        assert 0 < moved(ended) < VOLUME_BYTES
        check_ledger(ended)
        check_invoice(client, [ended])


def test_a_job_that_is_cancelled_while_its_machines_start_is_charged_for_those_alone(stage: Stage) -> None:
    world, tenant = stage.world, stage.tenants[0]
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
        wait_until(lambda: len(stage.booter.machines) > 0, PATIENCE_S)
        ended = cancelled(client, job_id)
        stage.check_nothing_is_left()
        assert len(machine_lines(ended)) == len(stage.booter.machines)
        check_invoice(client, [ended])


def test_two_tenants_have_machines_of_their_own_and_learn_nothing_of_each_other(stage: Stage) -> None:
    """While the link admits one job, the second tenant waits, and is not told for whom."""
    world = stage.world
    limit = {"kind": "link", "name": f"{SOURCE}>{SINK}", "active": 1}
    with world.server.client() as admin, ExitStack() as held:
        assert admin.put("/v1/limits", json={"limits": [limit]}).status_code == 200
        clients = [held.enter_context(world.client(tenant)) for tenant in stage.tenants]
        first = submit(clients[0], "copy", limit_bytes_per_s=SLOW_BYTES_PER_S // 2)
        until_moving(clients[0], first)
        second = submit(clients[1], "copy", limit_bytes_per_s=SLOW_BYTES_PER_S // 2)
        wait_until(lambda: job_of(clients[1], second)["waiting"] is not None, PATIENCE_S)
        waiting = job_of(clients[1], second)
        assert waiting["state"] == "waiting" and len(stage.booter.living()) == 2, waiting
        assert admin.put("/v1/limits", json={"limits": [{**limit, "active": 2}]}).status_code == 200
        until_moving(clients[1], second)
        assert job_of(clients[0], first)["state"] == "running", "both must run at the same time"
        check_machines_are_apart(stage)
        jobs = [first, second]
        done = [
            check_done(client, tenant, job_id, "copy")
            for client, tenant, job_id in zip(clients, stage.tenants, jobs, strict=True)
        ]
        stage.check_nothing_is_left()
        for client, job in zip(clients, done, strict=True):
            check_invoice(client, [job])
        ends = list(zip(clients, stage.tenants, jobs, strict=True))
        for (client, _, job_id), (_, other, others_job) in permutations(ends):
            assert client.get(f"/v1/jobs/{others_job}").status_code == 404
            shown = (
                f"{waiting}\n{shown_to(world.server, client, job_id)}"
                if job_id == second
                else shown_to(world.server, client, job_id)
            )
            assert [word for word in (*other.words, others_job) if word in shown] == []


def check_machines_are_counted(stage: Stage, lines: list[dict[str, Any]], killed_unix_s: float) -> None:
    """Check that each machine that a cloud made is a line, those of the killed server for the time until its end."""
    for region in (SOURCE, SINK):
        booted = [one.booted_unix_s for one in stage.booter.machines.values() if one.region == region]
        (second,) = (line for line in lines if line["run"] == 2 and f" in {region}" in line["what"])
        first = [line for line in lines if line["run"] == 1 and f" in {region}" in line["what"]]
        assert second["quantity"] > 0 and len(first) == stage.launched(region) - 1 >= len(booted) - 1, lines
        assert all(line["quantity"] >= killed_unix_s - min(booted) for line in first), lines


def check_machines_are_apart(stage: Stage) -> None:
    """Check that each job has a machine in each region that no other job uses or reaches, without a trace of others."""
    fleets, living = stage.world.fleets(), stage.booter.living()
    assert sorted(len(fleet["jobs"]) for fleet in fleets) == [1, 1], fleets
    regions = [sorted(machine["region"] for machine in fleet["machines"]) for fleet in fleets]
    assert regions == [[SOURCE, SINK], [SOURCE, SINK]] and len(living) == 4, fleets
    machines_have_no_word_of(living, [word for tenant in stage.tenants for word in tenant.words])
    google = [machine for machine in living if machine.region == SINK]
    for one, other in permutations(google):
        assert not stage.gcp.engine.allows(other.address, one.id, DATA_PORT)


def key(name: str) -> dict[str, str]:
    return {"Idempotency-Key": name}
