"""Jobs of the service on pods of two real Kubernetes clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.kubelab import Lab
from tests.fleet.kube_world import NODES, REGIONS, Stage, lab_folder, lab_of_session, stage_of
from tests.fleet.worlds import wait_until
from tests.service.machine_world import machine_lines
from tests.service.rented_world import (
    OPERATOR_KEY,
    RentedWorld,
    Tenant,
    cancelled,
    check_done,
    check_invoice,
    check_ledger,
    check_taken_over,
    moving_job,
    rented_world,
    secrets_of,
    shown_to,
)

pytestmark = pytest.mark.slow
CLUSTERS = ("r1", "r2")


@dataclass
class Served:
    """The clusters, and the service."""

    clusters: Stage
    world: RentedWorld
    tenant: Tenant

    def check_nothing_is_left(self) -> None:
        """Check that no pod is left, by the service, by the operator's command, and by the clusters."""
        self.world.check_nothing_is_left()
        for cluster in CLUSTERS:
            wait_until(lambda cluster=cluster: self.clusters.objects(cluster) == [])  # type: ignore[misc]


@pytest.fixture(scope="module")
def kube_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_of_session(lab_folder(tmp_path_factory)) as lab:
        yield lab


@pytest.fixture
def served(kube_lab: Lab, tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as held:
        clusters = held.enter_context(stage_of(kube_lab, tmp_path))
        regions = (REGIONS[CLUSTERS[0]], REGIONS[CLUSTERS[1]])
        made = rented_world(tmp_path, kube_lab.address, regions, configuration(clusters), ["alder"])
        world, (tenant,) = held.enter_context(made)
        yield Served(clusters, world, tenant)


def configuration(clusters: Stage) -> list[str]:
    """Return the lines of the operator's configuration."""
    document = clusters.document(network="host")
    lines = ["[kubernetes]", f'kubeconfig = "{document["kubeconfig"]}"', f'home = "{document["home"]}"']
    for cluster in (one for one in document["clusters"] if one["context"] in CLUSTERS):
        lines += ["[[kubernetes.clusters]]", "usd_per_hour = 0.4", f"gateways = {NODES[cluster['context']]}"]
        lines += [
            f'{name} = "{cluster[name]}"'
            for name in ("context", "region", "image", "namespace", "network", "cpu", "memory")
        ]
    return lines


def test_a_job_on_pods_is_proven_and_its_invoice_is_its_ledger(served: Served) -> None:
    """Neither the tenant nor an object or log of the clusters has a key."""
    world, tenant = served.world, served.tenant
    keys = [*OPERATOR_KEY.values(), *secrets_of(tenant)]
    with world.client(tenant) as client:
        job_id = moving_job(client)
        for cluster in CLUSTERS:
            text = served.clusters.kubectl("get", "all,secrets,events", "-o", "yaml", region=cluster)
            text += served.clusters.kubectl(
                "logs", "-l", "tradewind-role", "--all-containers", "--tail=-1", region=cluster
            )
            assert "tradewind-fleet" in text and [key for key in keys if key in text] == []
        done = check_done(client, tenant, job_id, "copy")
        assert {line["what"].split(" in ")[1] for line in machine_lines(done)} == set(world.regions)
        check_invoice(client, [done])
        served.check_nothing_is_left()
        shown = shown_to(world.server, client, job_id)
    assert tenant.bucket in shown and [key for key in keys if key in shown] == []


def test_the_next_server_ends_the_pods_of_a_killed_one_and_finishes_its_job(served: Served) -> None:
    world, tenant = served.world, served.tenant
    with world.client(tenant) as client:
        job_id = moving_job(client)
    world.server.kill()
    world.server.start()
    with world.client(tenant) as client:
        done = check_taken_over(client, tenant, job_id, "copy")
        assert [line["run"] for line in machine_lines(done)] == [1, 1, 2, 2]
        check_invoice(client, [done])
        served.check_nothing_is_left()


def test_a_cancelled_job_ends_its_pods_and_is_charged_for_them(served: Served) -> None:
    world, tenant = served.world, served.tenant
    with world.client(tenant) as client:
        job_id = moving_job(client)
        ended = cancelled(client, job_id)
        served.check_nothing_is_left()
        check_ledger(ended)
        check_invoice(client, [ended])
