"""A job's ledger against a fake clock and a fake provider: every machine is charged once, from launch to end."""

from __future__ import annotations

import json
import os
import random
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_jobs import make as make_job
from tests.fleet.fake_gateways import FakeGateways, fake_gateways, lead_program
from tests.fleet.fake_provider import FakeProvider
from tests.fleet.test_fleet_seeds import RELAYS, plan_over
from tradewind.cli.main import main
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import client_lock
from tradewind.engine.ledger import (
    ALIVE_S_MAX,
    JobLedger,
    LedgerBook,
)
from tradewind.engine.report import job_cost, summary_lines
from tradewind.errors import CeilingReached, GatewayError, StateError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Ended, LaunchOrder, LaunchResult, Machine
from tradewind.fleet.settings import LEASE_S, LEASE_S_MIN, FleetSettings
from tradewind.gateway.process import STOP_S
from tradewind.model.event import HopActivity, Progress, Summary
from tradewind.model.ledger import EdgePrice, JobPrices, Ledger, MachinePrice, MachineUse, RunCount, billed_s
from tradewind.model.plan import Plan
from tradewind.model.price import PriceTier
from tradewind.model.requests import RequestPrices
from tradewind.state.database import open_database

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "60"))
USD_PER_S = 0.01
PRICES = JobPrices({"site:a": MachinePrice(USD_PER_S, "a test")})


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TimedProvider(FakeProvider):
    """A provider whose machines take up to `start_s_max` to start. It sums up their lifetimes."""

    start_s_max = 60.0

    def __init__(self, rng: random.Random, failing: float, clock: Clock) -> None:
        super().__init__(rng, failing, Job.gateways.control)
        self.clock, self.since_s, self.lived_s = clock, {}, 0.0  # type: ignore[var-annotated]

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        try:
            return super().launch(orders)
        finally:
            self.clock.now_s += self.rng.uniform(0, self.start_s_max)

    def _machine(self, order: LaunchOrder) -> Machine:
        since_s = self.since_s.setdefault((order.fleet_id, order.name), self.clock.now_s)
        return replace(super()._machine(order), launched_unix_s=since_s)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        answers = super().terminate(ids, grace_s=grace_s)
        for machine_id in ids:
            fleet_id, _, name = machine_id.partition("/")
            since_s = self.since_s.pop((fleet_id, name), None)
            self.lived_s += 0.0 if since_s is None else self.clock.now_s - since_s
        return answers


@pytest.fixture(scope="module")
def gateways() -> Iterator[FakeGateways]:
    """Fake gateways that answer at once."""
    with tempfile.TemporaryDirectory(prefix="tw-") as sockets, fake_gateways(Path(sockets), random.Random(0)) as made:
        Job.gateways = made
        yield made


@pytest.fixture(autouse=True)
def no_waits(gateways: FakeGateways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.launching.BACKOFF_S", 0.001)


def book_of(folder: Path) -> LedgerBook:
    return LedgerBook(open_database(folder), "job", str(folder / "job"))


class Job:
    """A job with several runs, each as in another process."""

    gateways: FakeGateways

    def __init__(self, folder: Path, seed: int, failing: float = 0.0) -> None:
        self.rng, self.clock, self.folder = random.Random(seed), Clock(), folder / "job"
        self.folder.mkdir(parents=True)
        self.provider = TimedProvider(self.rng, failing, self.clock)
        self.journal = FleetJournal(folder)
        self.book = book_of(folder)

    def begin(self, usd_max: float | None = None) -> JobLedger:
        stored = self.book.read() or Ledger(PRICES, 1.0)
        ledger = JobLedger(
            stored.ended(self.clock.now_s),
            self.book,
            usd_max=usd_max,
            clock=self.clock,
            suspended=Clock(),
            unix_s=self.clock.now_s,
        )
        ledger.begin_run()
        return ledger

    def fleet(self, ledger: JobLedger, plan: Plan) -> Fleet:
        settings = FleetSettings(plain=True)
        lead = lead_program(self.gateways)
        return Fleet(self.provider, self.journal, plan, lead, purpose="a test", settings=settings, meter=ledger)

    def stored_usd(self) -> float:
        ledger = self.book.read()
        return 0.0 if ledger is None else ledger.total_usd(self.clock.now_s)

    def status(self, state: str, **counts: Any) -> None:
        document = {"state": state, "progress": asdict(Progress(**counts)), "updated_unix_ms": 0}
        (self.folder / "status.json").write_text(json.dumps(document))


def progress(**counts: Any) -> dict[str, Any]:
    return asdict(Progress(**counts))


class HungProvider(TimedProvider):
    """A provider whose relays hang: they are killed 10 s after the others have ended, and it reports that time."""

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        ended = []
        for machine_id in sorted(ids, key=lambda machine_id: "relay" in machine_id):
            self.clock.now_s += 10.0 if "relay" in machine_id else 0.0
            super().terminate([machine_id])
            ended.append(Ended(machine_id, self.clock.now_s))
        return ended


def test_a_machine_that_hangs_is_charged_longer_than_those_that_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, 0)
    monkeypatch.setattr("tradewind.fleet.leases.elapsed_s", job.clock)
    monkeypatch.setattr("tradewind.fleet.charges.time", SimpleNamespace(time=job.clock))
    job.provider = HungProvider(job.rng, 0.0, job.clock)
    job.provider.start_s_max = 0.0
    ledger = job.begin()
    job.fleet(ledger, plan_over(["relay-0"])).close()
    lived_s = {use.name: use.ended_s - use.launched_s for use in ledger.ledger.machines if use.ended_s is not None}
    assert lived_s == {"source": 0.0, "sink": 0.0, "relay-0": 10.0}


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 5))])
def test_machines_are_charged_for_their_lifetime_in_any_case(tmp_path: Path, block: int) -> None:
    """Cases: runs that fail to start, changes of the plan that keep machines, machines that drain after a change."""
    for seed in range(block, SEEDS, 5):
        job = Job(tmp_path / str(seed), seed, failing=random.Random(seed).choice([0.0, 0.05, 0.3]))
        for _ in range(job.rng.randrange(1, 4)):
            ledger = job.begin()
            with suppress(GatewayError):
                fleet = job.fleet(ledger, plan_over(job.rng.sample(RELAYS, 2)))
                for _ in range(job.rng.randrange(4)):
                    job.clock.now_s += job.rng.uniform(0, 100)
                    plan = plan_over(job.rng.sample(RELAYS, job.rng.randrange(4)))
                    with suppress(GatewayError):
                        fleet.grow(plan)
                        job.clock.now_s += job.rng.uniform(0, 100)  # The old machines drain.
                        fleet.shrink(plan)
                    real_s = job.provider.lived_s + sum(
                        job.clock.now_s - since_s for since_s in job.provider.since_s.values()
                    )
                    assert ledger.spent_usd() == pytest.approx(real_s * USD_PER_S, abs=1e-9), f"seed {seed}"
                fleet.close()
            assert job.stored_usd() == pytest.approx(job.provider.lived_s * USD_PER_S, abs=1e-9), f"seed {seed}"
            job.clock.now_s += job.rng.uniform(0, 1000)  # No machine lives, so nothing is charged.


def test_a_replan_that_keeps_a_machine_charges_it_once_and_a_drained_one_until_its_end(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.provider.start_s_max = 0.0
    ledger = job.begin()
    fleet = job.fleet(ledger, plan_over(["relay-0"]))  # With source and sink: three machines.
    job.clock.now_s += 100
    fleet.grow(plan_over(["relay-1"]))
    job.clock.now_s += 10
    fleet.shrink(plan_over(["relay-1"]))
    job.clock.now_s += 40
    fleet.close()
    seconds = {use.name: use.ended_s - use.launched_s for use in ledger.ledger.machines if use.ended_s is not None}
    assert seconds == {"source": 150, "sink": 150, "relay-0": 110, "relay-1": 50}
    assert ledger.spent_usd() == pytest.approx(460 * USD_PER_S)


def test_failed_resumes_are_charged_only_for_their_own_time(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    first = job.begin()
    fleet = job.fleet(first, plan_over([]))
    job.clock.now_s += 160
    fleet.close()
    spent_usd = [job.stored_usd()]
    job.provider.failing = 2.0
    job.provider.losing = 0.0
    for _ in range(3):
        ledger = job.begin()
        with pytest.raises(GatewayError):
            job.fleet(ledger, plan_over([]))
        spent_usd.append(job.stored_usd())
    assert spent_usd[-1] == pytest.approx(job.provider.lived_s * USD_PER_S)
    assert spent_usd[-1] == pytest.approx(spent_usd[0]), "machines of the first run were charged again"


def test_egress_is_counted_once_although_each_lead_reports_the_sum_of_all_runs(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    first = job.begin()
    first.see(progress(cost_usd=0.4))
    first.save()
    job.status("interrupted", cost_usd=0.5)  # Its last report did not arrive.
    second = job.begin()
    assert second.spent_usd() == pytest.approx(0.5)
    second.see(progress(cost_usd=0.5))
    second.see(progress(cost_usd=0.75))
    second.see(progress(cost_usd=0.6))  # A late report.
    assert second.spent_usd() == pytest.approx(0.75)
    assert [line.usd for line in second.ledger.lines(0.0)] == pytest.approx([0.5, 0.25])


def test_egress_is_shown_by_edge_with_what_arrived(tmp_path: Path) -> None:
    edge = EdgePrice("aws:a → gcp:b", 0.1, "list")
    clock = Clock()
    ledger = JobLedger(Ledger(JobPrices(routes={"a → b": (edge,)})), None, clock=clock, unix_s=0.0)
    ledger.begin_run()
    hops = [HopActivity("a → b", 2 * 10**9), HopActivity("a → b", 10**9, id=7), HopActivity("a → c", 10**9)]
    ledger.see(progress(cost_usd=0.3, hops=hops))
    ledger.see(progress(cost_usd=0.1, hops=hops[:1]))  # A late report.
    (line,) = ledger.ledger.lines(0.0)
    assert (line.what, line.quantity, line.unit, line.source) == ("aws:a → gcp:b", 3.0, "GB", "list")
    assert line.usd == pytest.approx(0.3)


def test_compressed_bytes_in_flight_are_refunded_when_they_arrive(tmp_path: Path) -> None:
    edge = EdgePrice("aws:a → gcp:b", 0.1, "list")
    ledger = JobLedger(Ledger(JobPrices(routes={"a → b": (edge,)})), None, clock=Clock(), unix_s=0.0)
    ledger.begin_run()
    # 4 GB are in flight, booked at their full price; of 2 GB that arrived half was saved.
    early = progress(cost_usd=0.5, hops=[HopActivity("a → b", 2 * 10**9, saved_bytes=10**9)])
    ledger.see(early)
    assert ledger.spent_usd() == pytest.approx(0.5)
    ledger.see(progress(cost_usd=0.3, hops=[HopActivity("a → b", 6 * 10**9, saved_bytes=3 * 10**9)]))
    ledger.see(early)  # A late report.
    (line,) = ledger.ledger.lines(0.0)
    assert (line.what, line.quantity) == ("aws:a → gcp:b", 3.0)
    assert line.usd == pytest.approx(0.3)


def test_a_dead_lead_is_charged_for_what_it_had_recorded_in_advance(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    first = job.begin()
    first.see(progress(cost_usd=0.45))
    job.status("running", cost_usd=0.4)
    (job.folder / "spent").write_text("5.5e-1                                     123456\n")
    first.begin_run()  # The lead is restarted.
    assert first.spent_usd() == pytest.approx(0.55)
    first.see(progress(cost_usd=0.6))
    assert first.spent_usd() == pytest.approx(0.6)


def test_a_lead_that_was_killed_before_it_recorded_anything_is_charged(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    ledger = job.begin()
    ledger.see(progress(cost_usd=0.3))
    ledger.begin_run()
    ledger.see(progress(cost_usd=0.1))
    assert ledger.spent_usd() == pytest.approx(0.4)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 5))])
def test_kills_of_lead_and_client_lose_nothing_and_count_nothing_twice(tmp_path: Path, block: int) -> None:
    for seed in range(block, SEEDS, 5):
        killed_job(tmp_path / str(seed), seed)


def killed_job(folder: Path, seed: int) -> None:
    """Run a job whose leads and clients are killed at random, and compare its ledger with the bytes really sent."""
    rng = random.Random(seed)
    store = RequestPrices(get_usd_per_1000=1000.0, put_usd_per_1000=0.0)
    prices = JobPrices({}, store, "list", store, "list")
    job = Job(folder, seed)
    seen_usd, moved, journalled, gets = 0.0, 0, 0, 0
    ledger = JobLedger(Ledger(prices), job.book, clock=job.clock, unix_s=job.clock.now_s)
    ledger.begin_run()
    sent_usd = 0.0
    for _ in range(rng.randrange(1, 8)):
        earlier = journalled
        for _ in range(rng.randrange(12)):
            # The lead charges bytes before it sends them, so some charged bytes may not have been sent.
            booked_usd = rng.uniform(0.0, 0.1)
            (job.folder / "spent").write_text(f"{sent_usd + booked_usd:e} 0\n")
            if rng.random() < 0.5:
                ledger.see(counts(sent_usd + booked_usd, moved, earlier))
            sent_usd += booked_usd * rng.choice([0.0, 0.5, 1.0])
            (job.folder / "spent").write_text(f"{sent_usd:.17e} 0\n")
            objects = rng.randrange(4)
            moved, gets = moved + objects, gets + objects
            journalled = moved - (rng.randrange(objects + 1) if objects else 0)
            if rng.random() < 0.7:
                ledger.see(counts(sent_usd, moved, earlier))
            if rng.random() < 0.3:
                job.status("running", cost_usd=sent_usd * rng.random(), objects_done=journalled)
            job.clock.now_s += rng.uniform(0, 4)
            assert ledger.spent_usd() >= seen_usd * (1 - 1e-9), f"seed {seed}: the sum shrank"
            seen_usd = ledger.spent_usd()
        moved = journalled  # Work that is not in the journal is repeated.
        if rng.random() < 0.5:  # The client is killed too.
            stored = job.book.read() or Ledger(prices)
            ledger = JobLedger(stored.ended(job.clock.now_s), job.book, clock=job.clock, unix_s=job.clock.now_s)
            seen_usd = 0.0
        ledger.begin_run()
        egress_usd = ledger.ledger.usd_of("egress", job.clock.now_s)
        assert egress_usd >= sent_usd - 1e-9, f"seed {seed}: sent bytes were not charged"
        assert egress_usd <= sent_usd + 0.1 + 1e-9, f"seed {seed}: more than one charge was not sent"
        assert ledger.ledger.usd_of("requests", job.clock.now_s) <= gets + 1e-9, f"seed {seed}: requests counted twice"
    ledger.see(counts(sent_usd, moved, journalled))
    assert ledger.ledger.usd_of("egress", job.clock.now_s) <= sent_usd + 0.1 + 1e-9


def counts(cost_usd: float, objects_done: int, objects_earlier: int) -> dict[str, Any]:
    return progress(
        cost_usd=cost_usd,
        objects_done=objects_done,
        objects_earlier=objects_earlier,
        bytes_done=objects_done,
        bytes_earlier=objects_earlier,
    )


def test_a_ceiling_counts_requests_machines_and_egress(tmp_path: Path) -> None:
    prices = RequestPrices(get_usd_per_1000=0.4, put_usd_per_1000=5.0, list_usd_per_1000=5.0)
    clock = Clock()
    known = JobPrices(PRICES.machines, prices, "list", prices, "list")
    ledger = JobLedger(Ledger(known), None, usd_max=10.0, clock=clock, unix_s=0.0)
    ledger.begin_run()
    ledger.launched("fleet", "relay", "site:a")
    clock.now_s += 100
    ledger.see(progress(objects_total=1000, objects_done=1000, bytes_done=1000, cost_usd=0.5))
    assert ledger.spent_usd() == pytest.approx(1.0 + 0.5 + 0.4 + 0.005 + 5.0)
    assert ledger.spent_usd(0.7, clock.now_s + 3) == pytest.approx(1.03 + 0.7 + 5.405)
    assert ledger.usd == 10.0


def test_a_killed_owner_leaves_machines_that_are_charged_for_their_lease_at_most(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.begin().launched("fleet", "relay", "site:a")
    job.clock.now_s += 100
    assert job.stored_usd() == pytest.approx(100 * USD_PER_S)
    job.clock.now_s += 1e6
    assert job.stored_usd() == pytest.approx(ALIVE_S_MAX * USD_PER_S)
    again = job.begin()
    assert again.spent_usd() == pytest.approx(ALIVE_S_MAX * USD_PER_S)


def test_the_database_is_private_and_a_job_that_costs_nothing_has_no_ledger(tmp_path: Path) -> None:
    book = book_of(tmp_path)
    free = JobLedger(Ledger(), book)
    free.begin_run()
    free.launched("fleet", "local", "site:local")
    free.see(progress(bytes_done=10, objects_done=1))
    free.ended("fleet")
    free.save()
    assert os.listdir(tmp_path) == []
    paid = JobLedger(Ledger(PRICES), book)
    paid.begin_run()
    paid.launched("fleet", "local", "site:a")
    assert book.read() is not None
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_job_of_an_older_version_has_the_costs_of_that_version(tmp_path: Path) -> None:
    gateways = {"a": {"region": "site:a"}, "b": {"region": "site:b"}}
    old = {
        "ceiling": {"usd": 5.0, "machines_usd_per_s": 0.02, "boot_s": 50.0, "earlier_usd": 1.0, "since_s": 0.0},
        "topology": {"gateways": gateways},
    }
    book = book_of(tmp_path)
    ledger = book.present(old, Progress(elapsed_s=50.0, cost_usd=0.25), book.whole())
    assert ledger.total_usd(0.0) == pytest.approx(1.0 + 2.0 + 0.25)
    assert ledger.prices.machines["site:b"].usd_per_s == pytest.approx(0.01)
    assert book.present({"ceiling": None, "topology": None}, Progress(), book.whole()) == Ledger()
    assert not book.is_damaged()
    book.write(Ledger())
    open_database(tmp_path).write("UPDATE ledgers SET prices = '{'")
    assert book.is_damaged()
    assert book.present({}, Progress(cost_usd=0.5), book.read()).total_usd(0.0) == 0.5


def test_the_ledger_of_a_job_of_many_petabytes_is_whole(tmp_path: Path) -> None:
    book = book_of(tmp_path)
    ledger = Ledger(PRICES, runs=(RunCount(1, 1e6, route_bytes={"a → b": 10**18}, duplicate_bytes=10**17),))
    book.write(ledger)
    assert book.whole() == ledger


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("ledgers", "prices", "{"),
        ("ledgers", "earlier_usd", -5.0),
        ("ledgers", "heartbeat_unix_s", "x"),
        ("ledger_machines", "usd_per_s", -0.02),
        ("ledger_machines", "launched_unix_s", b"\xff"),
        ("ledger_machines", "ended_unix_s", -1e300),
        ("ledger_runs", "egress_usd", float("-inf")),
        ("ledger_runs", "read", '{"gets": -1000000000}'),
        ("ledger_runs", "route_bytes", '{"a → b": "x"}'),
    ],
)
def test_a_damaged_ledger_is_no_proof_of_the_cost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: str,
    column: str,
    value: Any,
) -> None:
    """Neither as a job that cost nothing, nor as one below its ceiling, nor with an error of the program."""
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    control = JobControl(state_dir=str(tmp_path))
    make_job(control.store, "job-1")
    ledger = Ledger(PRICES, 1.0, (MachineUse(1, "f", "one", "site:a", 100.0, 200.0, 0.02),), (RunCount(1, 0.5),), 0.25)
    control.book("job-1").write(ledger)
    assert control.book("job-1").read() == ledger
    control.store.database.write(f"UPDATE {table} SET {column} = ?", (value,))
    for words in (["jobs", "show", "job-1"], ["jobs", "show", "job-1", "--json"], ["jobs", "receipt", "job-1"]):
        assert main(words) == StateError.exit_code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: the cost of job job-1 is unknown: its ledger in ")
        assert main(["jobs", "list"]) == 0 and "job-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("ledgers", "prices = replace(prices, 'site:a', 'site:b')"),
        ("ledgers", "predicted_usd = predicted_usd + 1"),
        ("ledgers", "earlier_usd = 0.125"),
        ("ledgers", "heartbeat_unix_s = heartbeat_unix_s + 1"),
        ("ledgers", "job = 'job-3'"),
        ("ledger_machines", "usd_per_s = usd_per_s / 2"),
        ("ledger_machines", "ended_unix_s = ended_unix_s - 64"),
        ("ledger_machines", "ended_unix_s = 0"),
        ("ledger_machines", "billed_s_min = 0.5"),
        ("ledger_machines", "name = 'onf'"),
        ("ledger_runs", "egress_usd = 0.25"),
        ("ledger_runs", "run = 2"),
        ("ledger_runs", "route_bytes = replace(route_bytes, '900', '100')"),
    ],
)
def test_a_ledger_whose_values_have_changed_is_damaged(tmp_path: Path, table: str, change: str) -> None:
    """As after the flip of a bit, of which SQLite does not know. Ledgers of older versions have no digest."""
    book = book_of(tmp_path)
    uses = (MachineUse(1, "f", "one", "site:a", 100.0, 200.0, 0.02), MachineUse(1, "f", "two", "site:a", 100, 200.0, 1))
    ledger = Ledger(PRICES, 1.0, uses, (RunCount(1, 0.5, route_bytes={"a → b": 900, "ä": 2**62 + 1}),), 0.25, 5, 10.5)
    book.write(ledger)
    assert book.whole() == ledger
    database = open_database(tmp_path)
    job = database.rows("SELECT job FROM ledgers")[0][0]
    database.write(f"UPDATE {table} SET {change}")
    assert LedgerBook(database, "job-3" if "job-3" in change else job, str(tmp_path)).is_damaged()
    if "job-3" not in change:
        database.write("UPDATE ledgers SET prices = json_remove(prices, '$.digest')")
        assert book.whole() is not None


def test_every_display_shows_the_sum_of_the_ledger(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    ledger = job.begin()
    fleet = job.fleet(ledger, plan_over([]))
    job.clock.now_s += 50
    ledger.see(progress(cost_usd=0.5))
    fleet.close()
    plan, last = plan_over([]), Progress(cost_usd=0.5)
    stored = job.book.read()
    assert stored is not None
    job.clock.now_s += 1e6
    shown = job_cost(stored, plan, last, None, job.clock.now_s)
    assert shown == job_cost(ledger.ledger, plan, last, None, job.clock.now_s)
    assert shown.metered_usd == ledger.spent_usd() == sum(line["usd"] for line in shown.document()["lines"])
    assert summary_lines(Summary("done", last), plan, None, shown)[-1].startswith("cost    $1.00 predicted, ")


def test_machines_above_the_ceiling_are_not_started(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    billed = JobPrices({"site:a": MachinePrice(USD_PER_S, "a test", billed_s_min=60.0)})
    plan = plan_over([])  # Two machines: at least 1.20 USD.
    spent = Ledger(billed, 1.0, runs=(RunCount(1, 0.5),))

    def ledger(usd_max: float | None) -> JobLedger:
        return JobLedger(spent, job.book, usd_max=usd_max, clock=job.clock, unix_s=job.clock.now_s)

    assert len(plan.machines) == 2
    with pytest.raises(CeilingReached, match="leaves too little"):
        ledger(1.69).room_s(plan)
    assert ledger(1.7).room_s(plan) == pytest.approx(60.0)
    assert ledger(2.5).room_s(plan) == pytest.approx(100.0)
    assert ledger(None).room_s(plan) == float("inf")
    beside = ledger(2.5)
    beside.launched("a-fleet", "another", "site:a")
    assert beside.room_s(plan) < 100.0, "the living machines are charged too"
    with pytest.raises(CeilingReached):
        JobLedger(Ledger(runs=(RunCount(1, 0.5),)), None, usd_max=0.5, clock=job.clock).room_s(plan)


def test_machines_that_lived_for_seconds_are_charged_the_minimum(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.provider.start_s_max = 0.0
    billed = JobPrices({"site:a": MachinePrice(USD_PER_S, "a test", billed_s_min=60.0)})
    ledger = JobLedger(Ledger(billed), job.book, clock=job.clock, unix_s=job.clock.now_s)
    ledger.begin_run()
    fleet = job.fleet(ledger, plan_over([]))
    assert ledger.spent_usd() == pytest.approx(2 * 60 * USD_PER_S), "the minimum is charged from the launch on"
    job.clock.now_s += 5
    fleet.close()
    assert job.stored_usd() == pytest.approx(2 * 60 * USD_PER_S)


def test_the_leads_newer_sum_counts_if_tiers_cost_more_than_the_plans_mean() -> None:
    edge = EdgePrice("aws:a → gcp:b", 0.05, "list", (PriceTier(0.0, 0.09), PriceTier(10.0, 0.01)), "aws")
    clock = Clock()
    ledger = JobLedger(Ledger(JobPrices(routes={"a → b": (edge,)})), None, clock=clock, unix_s=0.0)
    ledger.begin_run()
    ledger.see(progress(cost_usd=0.5, hops=[HopActivity("a → b", 10 * 10**9)]))
    assert ledger.spent_usd() == pytest.approx(0.9)
    assert ledger.spent_usd(0.55) == pytest.approx(0.95)


def test_a_clock_set_back_between_runs_does_not_distort_charges(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.clock.now_s = 1e6
    job.begin().launched("fleet", "relay", "site:a")
    job.clock.now_s += 100
    killed = job.book.read()
    assert killed is not None
    job.clock.now_s = 2000.0
    again = job.begin()
    earlier_usd = again.spent_usd()
    again.launched("other", "relay", "site:a")
    job.clock.now_s += 50
    assert again.spent_usd() == pytest.approx(earlier_usd + 50 * USD_PER_S)
    again.ended("other")
    assert job.stored_usd() == pytest.approx(earlier_usd + 50 * USD_PER_S)


def test_prices_are_recorded_before_the_first_machine_is_ordered(tmp_path: Path) -> None:
    """If the client is killed at this moment, the resumed job must still charge its machines."""
    Job(tmp_path / "priced", 0).begin()
    stored = book_of(tmp_path / "priced").read()
    assert stored is not None
    assert (stored.prices, stored.predicted_usd) == (PRICES, 1.0)


def test_the_ledger_of_a_job_in_another_process_is_not_touched(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    ledger = job.begin()
    fleet = job.fleet(ledger, plan_over([]))
    stored = job.book.read()
    lock = client_lock(str(job.folder))
    assert lock is not None
    job.book.end_fleet(fleet.id, job.clock.now_s)
    job.book.end_machines(job.clock.now_s)
    assert job.book.read() == stored
    lock.release()
    job.book.end_fleet(fleet.id, job.clock.now_s)
    ended = job.book.read()
    assert ended is not None and all(use.ended_s is not None for use in ended.machines)
    book_of(tmp_path / "nowhere").end_fleet(fleet.id, job.clock.now_s)


def test_machines_of_a_killed_client_that_were_never_launched_cost_nothing(tmp_path: Path) -> None:
    """A sweep ends one fleet, a resumed or cancelled job all of them. Both know which machines were never launched."""
    job = Job(tmp_path, 0)
    ledger = job.begin()
    for fleet in ("one", "two"):
        ledger.launched(fleet, "relay", "site:a")
        ledger.launched(fleet, "ghost", "site:a")
    job.clock.now_s += 50
    job.book.end_fleet("one", job.clock.now_s, ["ghost"])
    assert charged(job) == [("one", "relay"), ("two", "relay"), ("two", "ghost")]
    job.book.end_machines(job.clock.now_s, {"two": ["ghost"], "one": ["relay"]})
    assert charged(job) == [("one", "relay"), ("two", "relay")], "an end that was recorded stays"


def charged(job: Job) -> list[tuple[str, str]]:
    stored = job.book.read()
    assert stored is not None
    return [(use.fleet, use.name) for use in stored.machines]


def test_machines_may_live_as_long_as_the_ceiling_allows(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    billed = JobPrices({"site:a": MachinePrice(USD_PER_S, "a test", billed_s_min=60.0)})

    def ledger(usd_max: float | None) -> JobLedger:
        made = JobLedger(Ledger(billed), None, usd_max=usd_max, clock=job.clock, unix_s=job.clock.now_s)
        made.begin_run()
        for name in ("a", "b"):
            made.launched("a-fleet", name, "site:a")
        return made

    assert ledger(None).left_s(900.0) == 900.0 and ledger(None).can_pay(1e9)
    paid = ledger(2 * 70 * USD_PER_S)
    assert paid.can_pay(19 * USD_PER_S) and not paid.can_pay(21 * USD_PER_S)
    assert paid.left_s(900.0) == pytest.approx(70.0, abs=0.1), "the minimum is not charged again"
    assert paid.left_s(20.0) == 20.0
    job.clock.now_s += 65
    assert paid.left_s(900.0) == pytest.approx(5.0, abs=0.1)
    job.clock.now_s += 10
    assert paid.left_s(900.0) == pytest.approx(0.0, abs=0.1)
    paid.ended("a-fleet")
    assert paid.left_s(900.0) == 900.0, "nothing else is left to charge"


def test_leases_end_before_the_ceiling_but_are_never_short(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.provider.start_s_max = 0.0
    ledger = job.begin(usd_max=2 * 300 * USD_PER_S)
    fleet = job.fleet(ledger, plan_over([]))
    assert fleet._renewals.lease_s() == 300 - STOP_S
    assert fleet._renewals.lease_s(least_s=295.0) == 295
    job.clock.now_s += 280
    assert fleet._renewals.lease_s() == LEASE_S_MIN
    fleet.close()
    assert fleet._renewals.lease_s() == LEASE_S


def test_a_machine_is_charged_at_most_until_its_lease_ended(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    ledger = job.begin()
    ledger.launched("a-fleet", "source", "site:a")
    ledger.launched("a-fleet", "sink", "site:a")
    job.clock.now_s += 100
    ledger.ended("a-fleet", {"source"}, 60.0)
    ledger.ended("a-fleet", {"sink"}, 1000.0)
    assert [(use.ended_s or 0.0) - use.launched_s for use in ledger.ledger.machines] == [40.0, 0.0]


def test_a_job_with_a_ceiling_does_not_start_without_a_ledger_on_disk(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    open_database(tmp_path).write("DROP TABLE ledger_runs")
    with pytest.raises(StateError, match="ledger_runs"):
        job.begin(usd_max=1.0)
    job.book = LedgerBook(open_database(tmp_path / "other"), "job", str(job.folder))
    job.begin(usd_max=1.0)


def test_time_is_billed_in_the_units_of_the_provider() -> None:
    assert billed_s(61.0, 0.0, 0.0) == 61.0
    assert billed_s(61.0, 0.0, 60.0) == 120.0
    assert billed_s(120.0, 0.0, 60.0) == 120.0
    assert billed_s(5.0, 60.0, 1.0) == 60.0
    assert MachinePrice(0.01, billed_s_min=60.0, billed_unit_s=3600.0).usd(3601.0) == pytest.approx(72.0)


def test_machines_are_charged_while_this_machine_is_suspended(tmp_path: Path) -> None:
    job, asleep = Job(tmp_path, 0), Clock()
    ledger = JobLedger(Ledger(PRICES), job.book, usd_max=9.0, clock=job.clock, suspended=asleep, unix_s=job.clock.now_s)
    ledger.launched("a-fleet", "source", "site:a")
    ledger.launched("a-fleet", "sink", "site:a")
    job.clock.now_s += 10
    asleep.now_s += 3600
    assert ledger.spent_usd() == pytest.approx(2 * 3610 * USD_PER_S)
    assert ledger.spent_usd(at_s=job.clock.now_s + 5) == pytest.approx(2 * 3615 * USD_PER_S)
    ledger.ended("a-fleet", {"source"}, ago_s=2700)  # Its lease expired meanwhile.
    ledger.ended("a-fleet", {"sink"})
    assert ledger.spent_usd() == pytest.approx((910 + 3610) * USD_PER_S)


def test_a_machine_is_charged_from_the_providers_start_at_the_launched_types_price(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    ledger = job.begin()
    now_s = job.clock.now_s
    for name in ("source", "sink", "refused"):
        ledger.launched("a-fleet", name, "site:a")
    ledger.refused("a-fleet", {"refused"})
    job.clock.now_s += 50
    ledger.reported("a-fleet", "source", now_s + 20, None)
    ledger.reported("a-fleet", "sink", now_s - 1000, MachinePrice(0.02, "another type", 0.0, 60.0))
    job.clock.now_s += 10
    ledger.ended("a-fleet", {"source"}, ago_s=5)
    ledger.ended("a-fleet")
    stored = job.book.read()
    for found in (ledger.ledger, stored):
        assert found is not None
        lived = {use.name: (use.launched_s - now_s, (use.ended_s or 0.0) - now_s) for use in found.machines}
        assert lived == {"source": (20.0, 55.0), "sink": (0.0, 60.0)}, (
            "neither it nor the refused one was ordered before"
        )
        assert found.usd_of("machine", now_s) == pytest.approx(35 * USD_PER_S + 60 * 0.02)
