"""A service whose operator rents machines, and tenants with a store at each end.

Providers, regions and the network are those of the test. Keys of the operator and of each tenant are words that a test
can look for.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from testbed.clouds.booter import BootedMachine
from testbed.drive import Command
from testbed.postgres import Postgres
from testbed.servers import Server as Store
from testbed.servers import versitygw
from tests.fleet.transfers import files_in, holding
from tests.fleet.worlds import wait_until
from tests.service.machine_world import check_charges, connection, machine_lines
from tests.service.server import Server, do_not_overlap
from tests.sky.world import differences, write_files
from tradewind.model.records import dataclass

__all__ = [
    "OPERATOR_KEY",
    "PATIENCE_S",
    "SLOW_BYTES_PER_S",
    "VOLUME_BYTES",
    "RentedWorld",
    "Tenant",
    "body",
    "cancelled",
    "check_done",
    "check_invoice",
    "check_ledger",
    "check_no_key_is_shown",
    "check_taken_over",
    "job_of",
    "machines_have_no_word_of",
    "moved",
    "moving_job",
    "rented_world",
    "secrets_of",
    "shown_to",
    "submit",
    "until_moving",
    "until_state",
]

VOLUME_BYTES = 12_000_000
#: Rate of jobs that must still run when something happens to them.
SLOW_BYTES_PER_S = 400_000
#: Price of each byte between the regions, which makes the egress of a job worth some cents.
USD_PER_GB = 5.0
#: Time for machines to boot on a busy host, and for the transfer.
PATIENCE_S = 300.0
#: The operator's own key of AWS.
OPERATOR_KEY = {"AWS_ACCESS_KEY_ID": "OPERATORS-KEY-ID", "AWS_SECRET_ACCESS_KEY": "operators-own-secret"}


@dataclass(frozen=True)
class Tenant:
    """A tenant with a store in each region. Its token may do what an admin of the tenant may."""

    name: str
    token: str
    stores: tuple[Store, Store]

    @property
    def bucket(self) -> str:
        return bucket_of(self.name)

    @property
    def words(self) -> list[str]:
        """The secrets of a tenant: its name, buckets, stores and keys."""
        ends = [store.endpoint.partition("//")[2] for store in self.stores]
        return [self.name, *ends, *(store.secret_key for store in self.stores)]

    def differences(self, prefix: str) -> list[str]:
        """Return what differs between the source and a copy."""
        folders = [store.folder / "data" / self.bucket for store in self.stores]
        return differences(folders[0] / "data", folders[1] / prefix)


class RentedWorld:
    """The service, and its operator's command."""

    def __init__(
        self,
        folder: Path,
        address: str,
        regions: tuple[str, str],
        configuration: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.address, self.regions = folder, address, regions
        self.command = Command(folder / "home")
        self.command.environment |= {**OPERATOR_KEY, "AWS_REGION": "us-east-1", **(environment or {})}
        self.command.configure(*configuration)
        self.stores: list[Store] = []
        self.servers: list[Server] = []

    @property
    def server(self) -> Server:
        return self.servers[0]

    def start(self, database: Postgres | None = None) -> None:
        """Start the service, with a database as two replicas. All stores must run."""
        endpoints = [word for store in self.stores for word in ("--allow-endpoint", store.endpoint)]
        words = ["--via", "auto", "--max-cost", "5USD", "--max-vms", "1", "--share-keys", *endpoints]
        environment = self.command.full_environment()
        if database is not None:
            words += ["--database", database.url]
            environment |= database.environment
        logs = ["server.log"] if database is None else ["server 0.log", "server 1.log"]
        self.servers = [Server(self.folder, *words, log=log, **environment) for log in logs]
        if database is not None:
            self.server.prepare("--migrate")
        for name, column, rows in (("links", "gbps", 0.024), ("prices", "usd_per_gb", USD_PER_GB)):
            table = self.folder / f"{name}.csv"
            table.write_text(f"src,dst,{column}\n{','.join(self.regions)},{rows}\n", encoding="utf-8")
            self.as_the_server("catalog", "import", str(table))
        for server in self.servers:
            server.start()

    def as_the_server(self, *words: str) -> str:
        """Run the operator's command with the state folder of the server's engine; return its output."""
        self.command.environment["TRADEWIND_STATE_DIR"] = str(self.server.state / "engine")
        try:
            return self.command.run(*words).expect(0).stdout
        finally:
            del self.command.environment["TRADEWIND_STATE_DIR"]

    def tenant(self, name: str, stores: tuple[Store, Store]) -> Tenant:
        """Make a tenant with connections to its stores."""
        with self.server.client() as admin:
            assert admin.post("/v1/tenants", json={"name": name}).status_code == 201
            made = admin.post("/v1/tokens", json={"tenant": name, "role": "tenant_admin"})
            tenant = Tenant(name, made.json()["token"], stores)
        with self.client(tenant) as client:
            for end, region, store in zip("ab", self.regions, stores, strict=True):
                body = {**connection(end, region, store), "place": f"s3://{tenant.bucket}/"}
                answer = client.post("/v1/connections", json=body)
                assert answer.status_code == 201, answer.text
        return tenant

    def client(self, tenant: Tenant, server: Server | None = None) -> httpx.Client:
        """Return a client of the tenant, by default at the first server."""
        return (server or self.server).client(tenant.token)

    def fleets(self) -> list[dict[str, Any]]:
        """Return the fleets with machines, as the operator sees them."""
        with self.server.client() as admin:
            found: list[dict[str, Any]] = admin.get("/v1/fleets").json()["fleets"]
        return [one for one in found if one["machines"]]

    def check_nothing_is_left(self) -> None:
        """Check that neither the service nor the operator's command finds a machine, from any state folder."""
        wait_until(lambda: self.fleets() == [])
        for swept in (self.as_the_server("fleet", "sweep"), self.command.run("fleet", "sweep").expect(0).stdout):
            assert swept.splitlines() == ["nothing is left"], swept


def bucket_of(tenant: str) -> str:
    return f"{tenant}-bucket"


@contextmanager
def rented_world(
    folder: Path,
    address: str,
    regions: tuple[str, str],
    configuration: Sequence[str],
    tenants: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    database: Postgres | None = None,
) -> Iterator[tuple[RentedWorld, list[Tenant]]]:
    """Run the service and two stores for each tenant, at an address that the machines reach.

    `environment` is the operator's, beside the keys. With a `database` the service has two replicas.
    """
    world = RentedWorld(folder, address, regions, configuration, environment)
    with ExitStack() as held:
        stores = {}
        for name in tenants:
            made = tuple(
                held.enter_context(versitygw(data_parent=folder, address=address, secret=f"{name}s-secret-{end}-key"))
                for end in "ab"
            )
            stores[name] = (made[0], made[1])
            for store in made:
                (store.folder / "data" / bucket_of(name)).mkdir()
            write_files(made[0].folder / "data" / bucket_of(name) / "data", VOLUME_BYTES)
            world.stores += made
        try:
            world.start(database)
            yield world, [world.tenant(name, stores[name]) for name in tenants]
        finally:
            for server in world.servers:
                if server.process is not None:
                    server.kill(signal.SIGTERM)
            world.command.wait_until_alone()


def secrets_of(tenant: Tenant) -> list[str]:
    """Return the tenant's keys of its stores."""
    return [store.secret_key for store in tenant.stores]


def submit(client: httpx.Client, to: str, **others: Any) -> str:
    """Submit a job on machines from the tenant's first store to its second one; return its id."""
    made = client.post("/v1/jobs", json=body(to, **others), headers={"Idempotency-Key": to})
    assert made.status_code == 201, made.text
    job_id: str = made.json()["id"]
    return job_id


def moving_job(client: httpx.Client) -> str:
    """Submit a slow job, and return its id once its machines have moved a part of its bytes."""
    job_id = submit(client, "copy", limit_bytes_per_s=SLOW_BYTES_PER_S)
    until_moving(client, job_id)
    return job_id


def cancelled(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Cancel a job, and return it once it is cancelled."""
    assert client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    return until_state(client, job_id, "cancelled")


def body(to: str, **others: Any) -> dict[str, Any]:
    places = {"source": "connection:a/data/", "destination": f"connection:b/{to}/"}
    return {**places, "recursive": True, "via": "fleet", **others}


def job_of(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return a job, which is not failed."""
    found: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").json()
    assert found["state"] != "failed", found
    return found


def until_moving(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return a job once its machines have moved a part of its bytes."""
    wait_until(lambda: moved(job_of(client, job_id)) > 0, PATIENCE_S)
    found = job_of(client, job_id)
    assert found["state"] == "running" and moved(found) < VOLUME_BYTES, "the job must not end before the test"
    return found


def moved(job: Mapping[str, Any]) -> int:
    return int((job["counts"] or {}).get("bytes_done", 0))


def until_state(client: httpx.Client, job_id: str, state: str) -> dict[str, Any]:
    """Return a job once it is in a state."""
    wait_until(lambda: job_of(client, job_id)["state"] == state, PATIENCE_S)
    return job_of(client, job_id)


def check_done(client: httpx.Client, tenant: Tenant, job_id: str, prefix: str) -> dict[str, Any]:
    """Check that a job ends, that its bytes are there and proven, and that its ledger adds up. Return the job."""
    done = until_state(client, job_id, "done")
    assert tenant.differences(prefix) == []
    assert sum(done["proofs"].values()) == VOLUME_BYTES // 1_000_000, done
    check_ledger(done)
    check_charges(client, job_id)
    return done


def check_taken_over(client: httpx.Client, tenant: Tenant, job_id: str, prefix: str) -> dict[str, Any]:
    """Check that the job of a killed server was done once, by a second run."""
    done = check_done(client, tenant, job_id, prefix)
    assert [one["id"] for one in client.get("/v1/jobs").json()["jobs"]] == [job_id]
    runs = client.get(f"/v1/jobs/{job_id}/receipt").json()["runs"]
    assert [run["outcome"] for run in runs] == [None, "done"] and do_not_overlap([{"runs": runs}]), runs
    assert {line["run"] for line in machine_lines(done)} == {1, 2}
    return done


def machines_have_no_word_of(machines: Sequence[BootedMachine], words: Sequence[str]) -> None:
    """Check that files, processes, user data and consoles of machines have none of these words."""
    folders = [machine.path(name) for machine in machines for name in ("/run", "/tmp", "/var/lib")]
    files = [path for folder in folders for path in files_in(folder)]
    pids = [pid for machine in machines for pid in machine.pids()]
    files += [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")]
    files += [machine.console_file for machine in machines]
    files += [machine.console_file.with_suffix(".user-data") for machine in machines]
    assert len(pids) >= 2 * len(machines)
    assert {word: found for word in words if (found := holding(word, files))} == {}


def check_no_key_is_shown(world: RentedWorld, tenant: Tenant, client: httpx.Client, job_id: str) -> None:
    """Check that the API shows no key of the operator or the tenant, and that no file of the server has one.

    The files may have the id of the operator's key.
    """
    shown = shown_to(world.server, client, job_id)
    secrets = [OPERATOR_KEY["AWS_SECRET_ACCESS_KEY"], *secrets_of(tenant)]
    assert tenant.bucket in shown
    assert [key for key in (*OPERATOR_KEY.values(), *secrets) if key in shown] == []
    kept = [path for path in files_in(world.server.state) if path.is_file()]
    assert [path for secret in secrets for path in holding(secret, kept)] == []


def check_ledger(job: Mapping[str, Any]) -> None:
    """Check that each line is its quantity at its price, that machines and egress cost money, and the sum."""
    lines = job["ledger"]["lines"]
    for line in lines:
        assert abs(line["quantity"] * line["unit_usd"] - line["usd"]) < 1e-6, line
    egress = [line for line in lines if line["kind"] == "egress" and line["usd"] > 0]
    assert egress and machine_lines(dict(job)), lines
    assert sum(line["quantity"] for line in egress) * 1e9 >= moved(job)
    assert abs(sum(line["usd"] for line in lines) - job["ledger"]["metered_usd"]) < 1e-6


def check_invoice(client: httpx.Client, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Check that the tenant's only invoice is the ledgers of its jobs, to the cent."""
    (month,) = client.get("/v1/invoices").json()["invoices"]
    invoice = client.get(f"/v1/invoices/{month['id']}").json()
    metered_usd = sum(job["ledger"]["metered_usd"] for job in jobs)
    assert sum(line["cents"] for line in invoice["lines"]) == invoice["total_cents"]
    assert abs(invoice["total_cents"] - metered_usd * 100) <= 0.5 + 1e-4 * len(invoice["lines"])
    assert {line["subject"] for line in invoice["lines"]} == {job["id"] for job in jobs}


def shown_to(server: Server, client: httpx.Client, job_id: str) -> str:
    """Return all that the API shows to a tenant whose job has ended."""
    paths = httpx.get(f"{server.url}/openapi.json", timeout=PATIENCE_S).json()["paths"]
    plain = [path for path, methods in paths.items() if "get" in methods and path.startswith("/v1/")]
    filled = [path.replace("{job_id}", job_id) for path in plain]
    months = [one["id"] for one in client.get("/v1/invoices").json()["invoices"]]
    asked = [path for path in filled if "{" not in path] + [f"/v1/invoices/{month}" for month in months]
    assert f"/v1/jobs/{job_id}/receipt" in asked and f"/v1/jobs/{job_id}/events" in asked
    return "\n".join(client.get(path, timeout=PATIENCE_S).text for path in asked)
