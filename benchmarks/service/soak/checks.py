"""The invariants of the soak, checked when it is over by queries of the soak's own, independent of the service."""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.service.soak.clients import FILES, STATES, TENANTS, USD_MICROS_PER_GB, Clients, Sent
from benchmarks.service.soak.watch import Usage, Watch, marked_processes, open_files, rows
from benchmarks.service.soak.world import BUCKET, OWN_BUCKET, SoakWorld
from tradewind.model.records import dataclass, field
from tradewind.model.url import parse_url

__all__ = ["Check", "Checks"]

ENDED = ("done", "failed", "cancelled")
ACTIVE = ("running", "pausing", "stopping", "cancelling")
MACHINES_TENANT = "epsilon"
QUIET_S = 300.0
"""Longest time in which nothing ends once all faults are over: a delivery whose server died is sent after 120 s."""
ENDS_S = 20.0
PROGRESS_S = 2.0
REASONS = {
    "No space left": ("destination full", "state disk full"),
    "no space": ("destination full", "state disk full"),
    "did not answer": ("store down", "store frozen"),
    "unreachable": ("store down", "store frozen"),
    "no progress": ("store down", "store frozen"),
    "cannot be launched": ("replica killed", "replica frozen", "replica terminated"),
    "lost": ("replica killed", "replica frozen", "state disk full"),
    # The gateways keep the right clock, so a replica that is ahead of it makes tokens which live too long.
    "would live longer": ("clock stepped",),
}
"""Words of the errors with which a job may fail, and the faults that explain each."""
RSS_GROWTH_MAX = 1.5
"""Bound on the memory of a replica at rest at the end, over the most that it had in the first half."""
REST_FILES_MAX = 60
"""Most files that a replica has open at rest: its own, and connections to databases and hosts that it keeps."""
REST_S = 10.0
"""Time for which replicas rest, before their files are counted."""
SEEN_SHARE, SLACK_S, LOST_S = 0.9, 2.0, 30.0
"""Bounds on the charged time of machines and runs: of what was seen, beyond the job's active time, and for a killed
server.
"""


@dataclass
class Check:
    """One invariant: what was looked at, how often, and what violates it."""

    name: str
    looked_at: int
    violations: list[str] = field(default_factory=list)


class Checks:
    """Waits until the service is quiet, and checks the invariants one by one."""

    def __init__(self, world: SoakWorld, clients: Clients, watch: Watch, faults: Counter[str]) -> None:
        self._world, self._clients, self._watch, self._faults = world, clients, watch, faults
        self._accepted = [one for one in clients.sent.values() if one.job is not None]
        self.states: Counter[str] = Counter()
        self.failed: list[tuple[str, str]] = []
        self.quiet_s = 0.0
        #: Number of looks at the use of replicas before they rested.
        self._looks_at_work = 0
        #: Open files of each replica at rest, by process id.
        self._rest_files: dict[int, Counter[str]] = {}
        #: Seconds of all machines that were charged, and that were seen from outside.
        self.machine_s = (0.0, 0.0)

    def wait_until_quiet(self) -> Check:
        """Wait until no job is open and no delivery is pending, or until nothing has ended for a long time."""
        began_s = last_end_s = time.monotonic()
        query = f"SELECT id, state, waiting, error FROM jobs WHERE state NOT IN {ENDED}"
        pending = "SELECT id, 'delivery', attempts, error FROM deliveries WHERE state = 'pending'"
        fewest: int | None = None
        while left := [*rows(self._world, query), *rows(self._world, pending)]:
            if fewest is None or len(left) < fewest:
                fewest, last_end_s = len(left), time.monotonic()
            elif time.monotonic() - last_end_s > QUIET_S:
                break
            _progress(f"{len(left)} left, such as {' '.join(map(str, left[0]))[:200]}")
            time.sleep(PROGRESS_S)
        self.quiet_s = time.monotonic() - began_s
        time.sleep(REST_S / 2)
        self._looks_at_work = len(self._watch.usage)
        time.sleep(REST_S / 2)
        for replica in self._world.replicas:
            if replica.process is not None:
                with suppress(FileNotFoundError):  # It has ended.
                    self._rest_files[replica.process.pid] = open_files(replica.process.pid)
        found = Check("everything ends after the last fault", len(self._accepted))
        found.violations = [" ".join(map(str, row)) for row in left]
        return found

    def while_it_runs(self) -> Iterator[Check]:
        """Check what needs the running service."""
        yield self._no_job_lost_or_doubled()
        yield self._reasons()
        yield self._failed_jobs_can_be_resumed()
        yield from self._money()
        yield self._webhooks()
        yield self._schedule()
        yield self._no_orphan_machine()

    def when_it_has_stopped(self, *, in_time: bool) -> Iterator[Check]:
        """Check what is left behind by the stopped service."""
        yield self._bytes()
        yield self._engine_jobs()
        yield Check("one writer of a place, one gateway of a job", self._watch.process_looks, self._watch.violations)
        yield self._nothing_left(in_time)
        yield self._use_is_bounded()

    def _no_job_lost_or_doubled(self) -> Check:
        """Send each submission again: it must be the same job, and the only one with its key."""
        check = Check("each accepted submission is one job", len(self._clients.sent))
        query = "SELECT tenant, idempotency_key, id FROM jobs"
        found = defaultdict(list)
        for tenant, key, job in rows(self._world, query):
            found[tenant, key].append(job)
        for sent in self._clients.sent.values():
            one = sent.submission
            jobs = found[one.tenant, one.key]
            if jobs != ([] if sent.job is None else [sent.job]):
                check.violations.append(f"{one.key} of {one.tenant}: answered {sent.status} {sent.job}, has {jobs}")
        keys = {(sent.submission.tenant, sent.submission.key) for sent in self._clients.sent.values()}
        strangers = [key for key in found if key not in keys and not key[1].startswith("schedule-")]
        check.violations += [f"nobody submitted {tenant} {key}" for tenant, key in strangers]
        check.violations += self._clients.unanswered
        for sent in self._clients.sent.values():
            if sent.status not in (200, 201, 402, 409):
                check.violations.append(f"{sent.submission.key} was refused: {sent.status} {sent.detail}")
        return check

    def _reasons(self) -> Check:
        check = Check("each failure has a reason that a fault explains", len(self._accepted))
        for job, state, error, engine_job in rows(self._world, "SELECT id, state, error, engine_job FROM jobs"):
            self.states[state] += 1
            if state == "failed":
                if error and "objects failed" in error:  # The reasons are those of the objects.
                    error = f"{error}: {'; '.join(self._object_errors(engine_job))}"
                self.failed.append((job, error or ""))
                faults = {fault for words, kinds in REASONS.items() if words in (error or "") for fault in kinds}
                if not any(self._faults[fault] for fault in faults):
                    check.violations.append(f"job {job} failed: {error}")
        return check

    def _object_errors(self, engine_job: str) -> list[str]:
        """Return the errors of the objects that failed, from the engine's list."""
        text = (self._world.state / "engine" / "jobs" / engine_job / "objects.ndjson").read_text()
        found = [json.loads(line) for line in text.splitlines()]
        return sorted({one["message"] for one in found if one["verdict"] == "failed"})

    def _failed_jobs_can_be_resumed(self) -> Check:
        """Resume what failed: without faults it must become done, unless the budget has no room."""
        check = Check("failed jobs can be resumed", len(self.failed))
        tenants = dict(rows(self._world, "SELECT id, tenant FROM jobs"))
        for job, _ in self.failed:
            answer = self._clients.ask(tenants[job], "POST", f"/v1/jobs/{job}/resume")
            if answer.status_code not in (202, 402):
                check.violations.append(f"resume of {job}: {answer.status_code} {answer.text}")
        left = self.wait_until_quiet() if self.failed else Check("", 0)
        check.violations += left.violations
        still = dict(rows(self._world, "SELECT id, error FROM jobs WHERE state = 'failed'"))
        for job, _ in self.failed:
            if job in still and not self._budget_is_spent(tenants[job]):
                check.violations.append(f"job {job} failed again: {still[job]}")
        return check

    def _budget_is_spent(self, tenant: str) -> bool:
        return self._clients.ask(tenant, "GET", f"/v1/tenants/{tenant}/budget").status_code == 200

    def _money(self) -> Iterator[Check]:
        reserved = Check("no reservation of an ended job is left", len(self._accepted))
        # The schedule submits a job every minute, also while the invariants are checked.
        query = """
            SELECT a.job FROM accounts a LEFT JOIN jobs j ON j.id = a.job
            WHERE (a.is_open <> 0 OR a.reserved_usd_micros <> 0)
                  AND coalesce(j.state, 'done') IN ('done', 'failed', 'cancelled')"""
        reserved.violations = [f"account of {job} is open" for (job,) in rows(self._world, query)]
        yield reserved
        yield self._charges()
        yield self._run_times()
        yield self._machine_charges()
        yield self._invoices()
        budget = Check("budgets are never exceeded", self._watch.budget_looks)
        budget.violations = [one for one in self._watch.violations if one.startswith("budget")]
        yield budget

    def _charges(self) -> Check:
        """Compare each job's charges with bytes at the tariff's price plus machines, its quote and its receipt."""
        check = Check("charges = bytes at the tariff + machines = receipt, within the quote", 0)
        query = """
            SELECT j.id, j.tenant, j.receipt, a.quote_usd_micros, coalesce(sum(c.usd_micros), 0),
                   coalesce(sum(c.volume_bytes), 0)
            FROM jobs j JOIN accounts a ON a.job = j.id LEFT JOIN charges c ON c.job = j.id
            WHERE j.state = 'done' GROUP BY j.id, a.quote_usd_micros"""
        for job, tenant, text, quote, charged, volume in rows(self._world, query):
            check.looked_at += 1
            moved = json.loads(text)["progress"]["bytes_done"]
            receipt = self._clients.ask(tenant, "GET", f"/v1/jobs/{job}/receipt").json()
            metered = sum(line["usd_micros"] for line in receipt["charges"] if line["what"].startswith("machine: "))
            price = moved * USD_MICROS_PER_GB / 1e9 + metered
            if volume != moved or charged > price + 1 or charged < min(price, price if quote is None else quote) - 1:
                check.violations.append(f"job {job}: {moved} bytes cost {price:.0f}, charged {charged} for {volume}")
            if quote is not None and charged > quote:
                check.violations.append(f"job {job}: charged {charged}, but its quote is {quote}")
            if sum(line["usd_micros"] for line in receipt["charges"]) != charged or "signature" not in receipt:
                check.violations.append(f"job {job}: the receipt differs from the charges")
        return check

    def _run_times(self) -> Check:
        """Compare the time of runs that tariffs by the hour price with the time in which each job was active."""
        check = Check("charged time of runs is within the job's active time", 0)
        query = "SELECT job, sum(run_ms) FROM charges WHERE job IS NOT NULL GROUP BY job"
        active_s = self._active_s()
        for job, run_ms in rows(self._world, query):
            check.looked_at += 1
            if run_ms / 1000 > active_s[job] + SLACK_S:
                check.violations.append(f"job {job}: charged {run_ms / 1000:.0f} s, active {active_s[job]:.0f} s")
        return check

    def _machine_charges(self) -> Check:
        """Compare the machines of each job's ledger with its charges, its active time, and the machines that were seen.

        A machine is seen a little later and less long than it lives. If its server was killed, it is charged until the
        next one ends it.
        """
        check = Check("machines: charges = ledger, within the job's active time, at least as long as seen", 0)
        active_s, charged_s, lost_lines = self._active_s(), 0.0, 0
        for job in (sent.job for sent in self._accepted if sent.submission.kind == "machines"):
            ledger, charged_usd, lost = self._machine_lines(str(job))
            if abs(charged_usd - sum(one["usd"] for one in ledger)) * 1e6 > 2 * len(ledger):
                check.violations.append(f"job {job}: charged {charged_usd} USD, ledger {ledger}")
            for one in ledger:
                is_lost = one["run"] in lost
                most_s = active_s[str(job)] + SLACK_S + (LOST_S if is_lost else 0.0)
                if one["quantity"] > most_s:
                    check.violations.append(f"job {job}: {one['what']} {one['quantity']:.0f} s, active {most_s:.0f} s")
                charged_s += one["quantity"]
                lost_lines += is_lost
            check.looked_at += len(ledger)
        seen_s = sum(last_s - first_s for first_s, last_s in self._watch.machines.values())
        self.machine_s = (charged_s, seen_s)
        if charged_s < seen_s * SEEN_SHARE - lost_lines * LOST_S:
            check.violations.append(f"charged {charged_s:.0f} s of machines, seen {seen_s:.0f} s ({lost_lines} lost)")
        return check

    def _active_s(self) -> dict[str, float]:
        """Return how long each job was active, by the clock of the database."""
        found: dict[str, float] = defaultdict(float)
        began: dict[str, int] = {}
        for job, at_ms, state in rows(
            self._world, "SELECT job, at_unix_ms, state FROM job_events ORDER BY job, number"
        ):
            if (since_ms := began.pop(job, None)) is not None:
                found[job] += (at_ms - since_ms) / 1000
            if state in ACTIVE:
                began[job] = at_ms
        return found

    def _machine_lines(self, job: str) -> tuple[list[dict[str, Any]], float, set[int]]:
        """Return the machines of a job's ledger, what was charged for them [USD], and the runs that were lost.

        A job that was cancelled before it began has no receipt.
        """
        shown = self._clients.ask(MACHINES_TENANT, "GET", f"/v1/jobs/{job}").json()
        receipt = self._clients.ask(MACHINES_TENANT, "GET", f"/v1/jobs/{job}/receipt").json()
        lines = [] if shown["ledger"] is None else shown["ledger"]["lines"]
        charged = sum(one["usd_micros"] for one in receipt.get("charges", ()) if one["what"].startswith("machine: "))
        lost = {number for number, run in enumerate(receipt.get("runs", ()), 1) if run["outcome"] is None}
        return [one for one in lines if one["kind"] == "machine"], charged / 1e6, lost

    def _invoices(self) -> Check:
        check = Check("invoices = charges, to the cent", 0)
        for tenant in TENANTS:
            charged = self._charged(tenant)
            total_micros, total_cents = self._invoiced(tenant, check)
            while (now := self._charged(tenant)) != charged:  # A job of the schedule was charged meanwhile.
                charged = now
                total_micros, total_cents = self._invoiced(tenant, check)
            if total_micros != charged or abs(total_cents - total_micros / 10_000) > 1:
                check.violations.append(f"{tenant}: charged {charged}, invoiced {total_micros} ({total_cents} c)")
        return check

    def _charged(self, tenant: str) -> int:
        query = "SELECT coalesce(sum(usd_micros), 0) FROM charges WHERE tenant = %s"
        return int(rows(self._world, query, tenant)[0][0])

    def _invoiced(self, tenant: str, check: Check) -> tuple[int, int]:
        """Return the sums of a tenant's invoices in micro-dollars and cents, and check that each adds up."""
        total_micros = total_cents = 0
        for one in self._clients.ask(tenant, "GET", "/v1/invoices").json()["invoices"]:
            invoice = self._clients.ask(tenant, "GET", f"/v1/invoices/{one['id']}").json()
            total_micros += sum(line["usd_micros"] for line in invoice["lines"])
            total_cents += invoice["total_cents"]
            check.looked_at += 1
            if sum(line["cents"] for line in invoice["lines"]) != invoice["total_cents"]:
                check.violations.append(f"invoice {one['id']}: its lines do not add up to the total")
        return total_micros, total_cents

    def _webhooks(self) -> Check:
        """Each change of a job to a state that its tenant's webhook has must have arrived, with a right signature."""
        receiver = self._world.receiver
        check = Check("each event was delivered and verifies", 0, list(receiver.unverified))
        query = "SELECT e.job, e.number, e.state FROM job_events e JOIN jobs j ON j.id = e.job WHERE j.tenant = ANY(%s)"
        wanted = {row for row in rows(self._world, query, list(TENANTS)) if row[2] in STATES}
        check.looked_at = len(wanted)
        check.violations += [f"not delivered: {event}" for event in sorted(wanted - receiver.events.keys())]
        check.violations += [f"nobody has seen: {event}" for event in sorted(receiver.events.keys() - wanted)]
        dropped = rows(self._world, "SELECT coalesce(sum(dropped), 0) FROM webhooks")[0][0]
        if dropped:
            check.violations.append(f"{dropped} events were dropped")
        return check

    def _schedule(self) -> Check:
        """The schedule has as many jobs as it counts, each for another minute."""
        query = "SELECT s.id, s.submitted, j.idempotency_key FROM schedules s LEFT JOIN jobs j ON j.schedule = s.id"
        found = rows(self._world, query)
        keys = [key for _, _, key in found if key is not None]
        check = Check("each time of the schedule is at most one job", len(keys))
        if len(set(keys)) != len(keys) or len(keys) != found[0][1]:
            check.violations.append(f"{found[0][1]} submitted, {len(keys)} jobs, {len(set(keys))} times")
        if any(int(key.rpartition("-")[2]) % 60 for key in keys):
            check.violations.append("a job is not for a full minute")
        return check

    def _bytes(self) -> Check:
        """Hash what jobs wrote, without Tradewind's code."""
        check = Check("done jobs: bytes at the destination = source", 0)
        done = {job for (job,) in rows(self._world, "SELECT id FROM jobs WHERE state = 'done'")}
        sources = {folder: _hashes(folder) for folder in (self._world.data / "source").iterdir()}
        big = _hashes(self._world.data / "big")
        for sent in self._accepted:
            if sent.job in done:
                one = sent.submission
                wanted = big if one.kind == "multipart" else sources[self._world.data / "source" / f"{one.source}"]
                check.looked_at += len(wanted)
                if (found := self._written(sent)) != wanted:
                    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
                    check.violations.append(f"job {sent.job}: {sent.destination} differs in {names}")
        return check

    def _written(self, sent: Sent) -> dict[str, str]:
        place = sent.destination.replace("connection:own/", f"s3://{OWN_BUCKET}/")
        if not place.startswith("s3://"):
            return _hashes(Path(place))
        client, url = self._world.store.client, parse_url(place, cwd="/")
        bucket, prefix = url.root.removeprefix("s3://"), place.split("/", 3)[3]
        return {key.removeprefix(prefix): client.sha256(bucket, key) for key in client.sizes(bucket, prefix)}

    def _no_orphan_machine(self) -> Check:
        """No job is open, so no machine may be left, on its host or in the service's records."""
        check = Check("no machine outlives its job", len(self._watch.machines))
        check.violations = self._world.provider.left_after(ENDS_S)
        admin = {"Authorization": f"Bearer {self._world.admin_token}"}
        fleets = httpx.get(f"{self._world.url}/v1/fleets", headers=admin, timeout=30).json()["fleets"]
        check.violations += [f"fleet {one['id']} has machines" for one in fleets if one["machines"]]
        done = f"SELECT count(*) FROM jobs WHERE tenant = '{MACHINES_TENANT}' AND state IN {ENDED}"
        if rows(self._world, done)[0][0] and not self._watch.machines:
            check.violations.append("no machine was seen, although jobs wanted some")
        return check

    def _engine_jobs(self) -> Check:
        """The engine must have one job for each job of the service that began, and no other."""
        begun = [one for (one,) in rows(self._world, "SELECT engine_job FROM jobs WHERE engine_job IS NOT NULL")]
        # A folder without a journal is what a killed server had begun; the engine removes it later.
        folders = {path.parent.name for path in (self._world.state / "engine" / "jobs").glob("*/journal.sqlite")}
        check = Check("no run without its job", len(begun))
        check.violations = [f"engine job {one} belongs to no job" for one in sorted(folders - set(begun))]
        check.violations += [f"engine job {one} has {n} jobs" for one, n in Counter(begun).items() if n > 1]
        return check

    def _nothing_left(self, in_time: bool) -> Check:
        end_s = time.monotonic() + ENDS_S
        while (left := marked_processes(self._world)) and time.monotonic() < end_s:
            time.sleep(0.2)
        check = Check("no process, upload or temporary file is left", 1)
        if not in_time:
            check.violations.append("a replica did not stop within a minute of SIGTERM")
        for pid in left:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            check.violations.append(f"process {pid}: {words[:200]}")
        check.violations += [f"unfinished upload: {key}" for key in self._world.has_uploads()]
        names = {f"{number}" for number in range(FILES)}
        for folder in ("copy", "shared", "small", "scheduled", "source"):
            for file in (self._world.data / folder).rglob("*"):
                if file.is_file() and file.name not in names:
                    check.violations.append(f"file {file.relative_to(self._world.data)}")
        for bucket in (BUCKET, OWN_BUCKET):
            for key in self._world.store.client.sizes(bucket):
                if key.rpartition("/")[2] not in names:
                    check.violations.append(f"object {bucket}/{key}")
        return check

    def growth(self) -> dict[int, Growth]:
        """Return the growth of each replica's process that ran in the first half and at rest."""
        return growth(self._watch.usage, self._looks_at_work)

    def _use_is_bounded(self) -> Check:
        check = Check("memory and open files of the replicas are bounded", len(self._watch.usage))
        for pid, one in self.growth().items():
            if one.rest_rss_bytes > one.work_rss_bytes * RSS_GROWTH_MAX:
                figures = f"{one.work_rss_bytes >> 20} MiB at work grew to {one.rest_rss_bytes >> 20} MiB at rest"
                check.violations.append(f"process {pid}: {figures}")
        for pid, files in self._rest_files.items():
            if files.total() > REST_FILES_MAX:
                kinds = ", ".join(f"{count} {kind}" for kind, count in files.most_common())
                check.violations.append(f"process {pid} has {files.total()} files open at rest: {kinds}")
        return check


@dataclass
class Growth:
    """Most memory and files of a process in the first half of a run, and what it has at rest after the last job."""

    work_rss_bytes: int
    work_files: int
    rest_rss_bytes: int
    rest_files: int


def growth(usage: Sequence[Usage], looks_at_work: int) -> dict[int, Growth]:
    """Return the growth of each process that was seen in the first half of its work, and at rest.

    The first jobs load libraries of providers, and running jobs have files open. A leak is what stays of all jobs.
    """
    if not looks_at_work or looks_at_work == len(usage):
        return {}
    half_s, found = usage[looks_at_work - 1].at_s / 2, {}
    for pid in dict.fromkeys(one.pid for one in usage):
        work = [one for one in usage[:looks_at_work] if one.pid == pid and one.at_s <= half_s]
        rest = [one for one in usage[looks_at_work:] if one.pid == pid]
        if work and rest:
            found[pid] = Growth(
                max(one.rss_bytes for one in work),
                max(one.files for one in work),
                round(statistics.median(one.rss_bytes for one in rest)),
                min(one.files for one in rest),
            )
    return found


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }
