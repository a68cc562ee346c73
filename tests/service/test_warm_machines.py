"""Machines of a warm fleet that jobs of two tenants use one after the other: the only gateways that tenants share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.transfers import files_in, holding
from tests.fleet.worlds import wait_until
from tests.service.machine_world import folder_on_host, host_lines
from tests.service.process_memory import memory_of
from tests.service.rented_world import (
    SLOW_BYTES_PER_S,
    RentedWorld,
    Tenant,
    check_done,
    check_invoice,
    rented_world,
    shown_to,
    submit,
    until_moving,
)

pytestmark = pytest.mark.slow
HOSTS = {"a": "site:a", "b": "site:b"}
NAMES = ("alder", "birch")


@dataclass
class Stage:
    """A service with a warm fleet, and two tenants."""

    world: RentedWorld
    tenants: list[Tenant]
    folder: Path

    def machines(self) -> list[int]:
        """Return the process ids of the gateways on the hosts."""
        texts = [path.read_text() for path in sorted(self.folder.glob("on */machines/*/pid"))]
        return [int(text) for text in texts]

    def fleet(self) -> str:
        """Return the id of the only fleet."""
        (fleet,) = self.world.fleets()
        return str(fleet["id"])

    def users(self) -> list[str]:
        """Return the jobs that use the fleet now."""
        (fleet,) = self.world.fleets()
        return list(fleet["jobs"])

    def words_on_machines(self, words: Sequence[str]) -> set[str]:
        """Return which words are in the memory or the files of machines."""
        files = [path for name in HOSTS for path in files_in(folder_on_host(self.folder, name)) if path.is_file()]
        kept = {word for word in words if holding(word, files)}
        memories = [memory_of(pid) for pid in self.machines()]
        return kept | {word for word in words if any(word.encode() in memory for memory in memories)}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable():
        pytest.skip(reason)
    if os.geteuid() != 0:
        pytest.skip("only root reads the memory of gateways")
    with ExitStack() as held:
        short = held.enter_context(TemporaryDirectory(prefix="tw-ssh-"))
        ssh = held.enter_context(local_ssh_server(Path(short, "ssh")))
        lines = host_lines(ssh.config, HOSTS, tmp_path)
        made = rented_world(tmp_path, "127.0.0.1", ("site:a", "site:b"), lines, NAMES)
        world, tenants = held.enter_context(made)
        world.as_the_server("fleet", "up", *HOSTS.values(), "-y")
        yield Stage(world, tenants, tmp_path)


def test_tenants_that_use_the_same_machines_leave_each_other_nothing(stage: Stage) -> None:
    world, fleet = stage.world, stage.fleet()
    ids: list[str] = []
    for tenant, other in zip(stage.tenants, reversed(stage.tenants), strict=True):
        with world.client(tenant) as client:
            job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S * 3)
            until_moving(client, job_id)
            assert len(stage.users()) == 1 and stage.fleet() == fleet, "the job uses the warm machines"
            found = stage.words_on_machines([tenant.bucket, other.bucket, *other.words])
            assert found == {tenant.bucket}, "the words of this tenant alone; those of the other one would be found"
            done = check_done(client, tenant, job_id, "copy")
            check_invoice(client, [done])
            wait_until(lambda: stage.users() == [])
            assert stage.words_on_machines([tenant.bucket, *tenant.words, other.bucket, *other.words]) == set()
            shown = shown_to(world.server, client, job_id)
            assert [word for word in (*other.words, *ids, fleet) if word in shown] == []
            ids.append(job_id)
    world.as_the_server("fleet", "down", fleet)
    world.as_the_server("fleet", "sweep")  # It removes the programs that were copied to the hosts.
    world.check_nothing_is_left()
