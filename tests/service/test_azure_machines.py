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
from testbed.clouds.lan import lan_unavailable
from testbed.postgres import Postgres
from testbed.servers import InstallError
from tests.fleet.worlds import wait_until
from tests.service.machine_world import machine_lines
from tests.service.rented_world import (
    OPERATOR_KEY,
    PATIENCE_S,
    SLOW_BYTES_PER_S,
    RentedWorld,
    Tenant,
    cancelled,
    check_done,
    check_invoice,
    check_no_key_is_shown,
    check_taken_over,
    machines_have_no_word_of,
    moving_job,
    rented_world,
    secrets_of,
    submit,
    until_moving,
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

    def check_nothing_is_left(self) -> None:
        """Check that no machine or part of one is left, by the service, by the operator's command, and by the cloud."""
        wait_until(lambda: self.cloud.booter.living() == [], PATIENCE_S)
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
    with world.client(tenant) as client:
        job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S * 3)
        until_moving(client, job_id)
        assert len(stage.cloud.booter.living()) == 2
        machines_have_no_word_of(stage.cloud.booter.living(), [*OPERATOR_KEY.values(), *secrets_of(tenant)])
        done = check_done(client, tenant, job_id, "copy")
        assert {line["what"].split(" in ")[1] for line in machine_lines(done)} == set(REGIONS)
        check_invoice(client, [done])
        stage.check_nothing_is_left()
        check_no_key_is_shown(world, tenant, client, job_id)


def test_the_next_server_ends_the_machines_of_a_killed_one_and_finishes_its_job(stage: Stage) -> None:
    world, tenant = stage.world, stage.tenant
    with world.client(tenant) as client:
        job_id = moving_job(client)
    world.server.kill()
    assert len(stage.cloud.booter.living()) == 2
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
        ended = cancelled(client, job_id)
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
            job_id = moving_job(client)
        killed = owner_of(database, world.servers, job_id)
        (other,) = (one for one in world.servers if one is not killed)
        killed.kill()
        with world.client(tenant, other) as client:
            done = check_taken_over(client, tenant, job_id, "copy")
            assert len(machine_lines(done)) == len(stage.cloud.booter.machines) == 4
            check_invoice(client, [done])
        world.servers.remove(killed)
        stage.check_nothing_is_left()
