"""Jobs of the service on machines of Azure, also of two replicas.

The API is a stand-in. Each machine that it starts really runs its custom data, in a namespace on a private network.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from testbed.clouds.azure import IDENTITY, AzureCloud, azure_cloud
from testbed.clouds.booter import BootedMachine
from testbed.clouds.lan import lan_unavailable
from testbed.postgres import Postgres
from testbed.servers import InstallError
from tests.fleet.transfers import files_in, holding
from tests.fleet.worlds import wait_until
from tests.service.machine_world import machine_lines
from tests.service.rented_world import (
    OPERATOR_KEY,
    PATIENCE_S,
    SLOW_BYTES_PER_S,
    RentedWorld,
    Tenant,
    check_done,
    check_invoice,
    check_taken_over,
    machines_have_no_word_of,
    rented_world,
    secrets_of,
    shown_to,
    submit,
    until_moving,
    until_state,
)
from tests.service.replicas import owner_of
from tradewind.fleet.azure.names import ADDRESSES, DISKS, INTERFACES, MACHINES
from tradewind.gateway.binary import find_gateway

pytestmark = pytest.mark.slow
REGIONS = ("azure:westeurope", "azure:eastus")


@dataclass
class Stage:
    """The cloud, and the service with a tenant."""

    cloud: AzureCloud
    world: RentedWorld
    tenant: Tenant

    def living(self) -> list[BootedMachine]:
        return [machine for machine in self.cloud.booter.machines.values() if not machine.ended.is_set()]

    def check_nothing_is_left(self) -> None:
        """Check that no machine or part of one is left, by the service, by the operator's command, and by the cloud."""
        wait_until(lambda: self.living() == [], PATIENCE_S)
        self.world.check_nothing_is_left()
        left = self.cloud.api.resources()
        assert [left.get(kind, []) for kind in (MACHINES, INTERFACES, ADDRESSES, DISKS)] == [[], [], [], []]


@contextmanager
def stage_of(folder: Path, database: Postgres | None = None) -> Iterator[Stage]:
    """Run the cloud and the service, with a database as two replicas."""
    if reason := lan_unavailable():
        pytest.skip(reason)
    with ExitStack() as held:
        beside = held.enter_context(TemporaryDirectory(prefix="tw-azure-"))
        cloud = held.enter_context(azure_cloud(Path(beside, "cloud"), find_gateway()))
        address = str(urlsplit(cloud.api.endpoint).hostname)
        made = rented_world(
            folder,
            address,
            REGIONS,
            configuration(cloud, address),
            ["alder"],
            environment=cloud.api.environment(),
            database=database,
        )
        world, (tenant,) = held.enter_context(made)
        yield Stage(cloud, world, tenant)


def configuration(cloud: AzureCloud, home: str) -> list[str]:
    """Return the lines of the operator's configuration."""
    document = cloud.document()
    names = [region.partition(":")[2] for region in REGIONS]
    texts = {name: document[name] for name in ("subscription", "resource_group", "endpoint")}
    lines = [f'{name} = "{text}"' for name, text in {**texts, "identity": IDENTITY}.items()]
    (program,) = document["programs"]
    fleet = [f'program_url = "{program["url"]}"', f'home_cidr = "{home}/32"', 'home_rate = "1Mbit/s"']
    return ["[azure]", *lines, f"regions = {names}".replace("'", '"'), "[fleet]", *fleet]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_of(tmp_path) as made:
        yield made


def test_a_job_between_two_regions_is_proven_and_its_invoice_is_its_ledger(stage: Stage) -> None:
    """The tenant sees no key of the operator, and no machine has a key in a file or a process's environment."""
    world, tenant = stage.world, stage.tenant
    keys = [*OPERATOR_KEY.values(), *secrets_of(tenant)]
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S * 3)
        until_moving(client, job_id)
        assert len(stage.living()) == 2
        machines_have_no_word_of(stage.living(), keys)
        done = check_done(client, tenant, job_id, "copy")
        assert {line["what"].split(" in ")[1] for line in machine_lines(done)} == set(REGIONS)
        check_invoice(client, [done])
        stage.check_nothing_is_left()
        shown = shown_to(world.server, client, job_id)
    assert tenant.bucket in shown and [key for key in keys if key in shown] == []
    kept = [path for path in files_in(world.server.state) if path.is_file()]
    assert [path for key in (OPERATOR_KEY["AWS_SECRET_ACCESS_KEY"], *keys[2:]) for path in holding(key, kept)] == []


def test_the_next_server_ends_the_machines_of_a_killed_one_and_finishes_its_job(stage: Stage) -> None:
    world, tenant = stage.world, stage.tenant
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
        until_moving(client, job_id)
    world.server.kill()
    assert len(stage.living()) == 2
    world.server.start()
    with world.client(tenant) as client:
        done = check_taken_over(client, tenant, job_id, "copy")
        assert len(machine_lines(done)) == len(stage.cloud.booter.machines) == 4
        check_invoice(client, [done])
    stage.check_nothing_is_left()


def test_a_job_that_is_cancelled_while_its_machines_start_leaves_nothing(stage: Stage) -> None:
    world, tenant = stage.world, stage.tenant
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
        wait_until(lambda: len(stage.cloud.booter.machines) > 0, PATIENCE_S)
        assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        ended = until_state(client, job_id, "cancelled")
        stage.check_nothing_is_left()
        assert len(machine_lines(ended)) >= len(stage.cloud.booter.machines)
        check_invoice(client, [ended])


def test_another_replica_ends_the_machines_of_a_killed_one_and_finishes_its_job(tmp_path: Path) -> None:
    """The API of the other one answers meanwhile."""
    with ExitStack() as held:
        try:
            database = Postgres()
        except InstallError as error:
            pytest.skip(str(error))
        held.callback(database.close)
        stage = held.enter_context(stage_of(tmp_path, database))
        world, tenant = stage.world, stage.tenant
        with world.client(tenant) as client:
            job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
            until_moving(client, job_id)
        killed = owner_of(database, world.servers, job_id)
        (other,) = (one for one in world.servers if one is not killed)
        killed.kill()
        with world.client(tenant, other) as client:
            done = check_taken_over(client, tenant, job_id, "copy")
            assert len(machine_lines(done)) == len(stage.cloud.booter.machines) == 4
            check_invoice(client, [done])
        world.servers.remove(killed)
        stage.check_nothing_is_left()
