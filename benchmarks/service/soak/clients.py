"""The clients of the soak: tenants, and what they submit, pause, resume and cancel.

Each submission is repeated with the same idempotency key until it has an answer, as the guide asks. Some are given up
after a few milliseconds on purpose and sent again, so that answers are lost also without a fault.
"""

from __future__ import annotations

import math
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx

from benchmarks.service.soak.machines import REGIONS
from benchmarks.service.soak.world import BUCKET, OWN_BUCKET, SoakWorld
from tradewind.model.records import dataclass, field

__all__ = ["Clients", "Sent", "Submission", "make_tenants", "plan_load", "prepare_sources"]

SOURCES, FILES, SHARED = 8, 4, 2
FILE_BYTES = (20_000, 600_000)
PART_BYTES, BIG_BYTES = 5 << 20, 12_000_000
RATE_BYTES_PER_S = 400_000
USD_MICROS_PER_GB = 10_000_000
THREADS = 8
ANSWER_S = 180.0
LOST_SHARE, PAUSED_SHARE, CANCELLED_SHARE = 0.1, 0.06, 0.04
BUDGET_JOBS = 0.7
"""Share of the quoted jobs that the budgets have room for, about."""
KINDS = (
    ("files", "alpha", 5),
    ("shared", "alpha", 3),
    ("small", "alpha", 2),
    ("quoted", "beta", 5),
    ("upload", "gamma", 3),
    ("multipart", "gamma", 1),
    ("download", "gamma", 3),
    ("quoted upload", "gamma-budget", 2),
    ("connection", "delta", 3),
    ("machines", "epsilon", 4),
)
"""Kind of job, its tenant, and how many of 31 jobs are of the kind."""
TENANTS = ("alpha", "beta", "gamma", "gamma-budget", "delta", "epsilon")
CONNECTIONS = {
    "delta": [{"name": "own", "place": f"s3://{OWN_BUCKET}/", "region": "us-east-1"}],
    "epsilon": [
        {"name": "near", "place": f"s3://{BUCKET}/", "region": REGIONS[0]},
        {"name": "own", "place": f"s3://{OWN_BUCKET}/", "region": REGIONS[1]},
    ],
}
"""Connections of each tenant. Both regions of machines have the same store."""
BUDGETS = ("beta", "gamma-budget")
STATES = ["running", "done", "failed", "cancelled", "paused"]


@dataclass(frozen=True)
class Submission:
    """A job to submit `at_s` after the start, and what its user does later."""

    number: int
    at_s: float
    kind: str
    tenant: str
    source: int
    loses_answer: bool
    then: str

    @property
    def key(self) -> str:
        """The idempotency key."""
        return f"soak-{self.number}"


@dataclass
class Sent:
    """The outcome of a submission: its job, or the status and detail with which it was refused."""

    submission: Submission
    job: str | None = None
    status: int = 0
    detail: str = ""
    requests: int = 0
    destination: str = ""
    changed: list[str] = field(default_factory=list)


def plan_load(
    chance: random.Random, count: int, duration_s: float, hours: float, machines_share: float | None = None
) -> list[Submission]:
    """Return the submissions by time: quiet nights and busy days, over so many simulated hours.

    `machines_share` is the share of the jobs that rent machines; that of KINDS if None.
    """
    times: list[float] = []
    while len(times) < count:
        at = chance.random()
        busy = 0.55 - 0.45 * math.cos(2 * math.pi * at * hours / 24)
        if chance.random() < busy:
            times.append(at * duration_s)
    names = [(kind, tenant) for kind, tenant, share in KINDS for _ in range(share)]
    renting, others = ([name for name in names if (name[0] == "machines") == rents] for rents in (True, False))
    found = []
    for number, at_s in enumerate(sorted(times)):
        if machines_share is not None:
            names = renting if chance.random() < machines_share else others
        kind, tenant = chance.choice(names)
        draw = chance.random()
        then = "pause" if draw < PAUSED_SHARE else "cancel" if draw < PAUSED_SHARE + CANCELLED_SHARE else ""
        source = chance.randrange(SHARED if kind == "shared" else SOURCES)
        found.append(Submission(number, at_s, kind, tenant, source, chance.random() < LOST_SHARE, then))
    return found


def prepare_sources(world: SoakWorld, chance: random.Random) -> None:
    """Write the sources: folders of files, the same below a prefix of the bucket, and one file of several parts."""
    for number in range(SOURCES):
        folder = world.data / "source" / f"{number}"
        folder.mkdir(parents=True)
        for file in range(FILES):
            body = chance.randbytes(chance.randrange(*FILE_BYTES))
            (folder / f"{file}").write_bytes(body)
            world.store.client.put(BUCKET, f"source/{number}/{file}", body)
    (world.data / "big").mkdir()
    (world.data / "big" / "0").write_bytes(os.urandom(BIG_BYTES))


def make_tenants(world: SoakWorld, plan: Sequence[Submission]) -> dict[str, str]:
    """Make tenants with tariff, budgets, limits, webhooks, a connection and a schedule; return a token of each."""
    tokens = {}
    with httpx.Client(base_url=world.first_url, headers=_bearer(world.admin_token), timeout=30) as admin:
        tiers = [{"from_quantity": 0, "usd_micros_per_unit": USD_MICROS_PER_GB}]
        _made(admin.put("/v1/tariffs", json={"tariffs": [{"name": "soak", "unit": "GB", "tiers": tiers}]}))
        for name in TENANTS:
            _made(admin.post("/v1/tenants", json={"name": name}))
        limits = [
            {"kind": "store-in", "name": f"s3://{BUCKET}", "active": 4},
            {"kind": "tenant", "name": "alpha", "active": 6},
            {"kind": "tenant", "name": "epsilon", "active": 2},
            {"kind": "link", "name": "site:local>site:local", "rate_gbps": 1.0},
        ]
        _made(admin.put("/v1/limits", json={"limits": limits}))
        _made(admin.put("/v1/weights", json={"weights": [{"tenant": "beta", "weight": 2.0}]}))
        for name in TENANTS:
            made = _made(admin.post("/v1/tokens", json={"tenant": name, "role": "tenant_admin"}))
            tokens[name] = made["token"]
        for name in BUDGETS:
            jobs = sum(one.tenant == name for one in plan)
            mean_bytes = FILES * sum(FILE_BYTES) / 2
            limit = round(BUDGET_JOBS * jobs * mean_bytes / 1e9 * USD_MICROS_PER_GB)
            _made(admin.put(f"/v1/tenants/{name}/budget", json={"limit_usd_micros": limit, "period": "month"}))
    for name, token in tokens.items():
        with httpx.Client(base_url=world.first_url, headers=_bearer(token), timeout=30) as client:
            made = _made(client.post("/v1/webhooks", json={"url": f"{world.receiver.url}/{name}", "states": STATES}))
            world.receiver.secrets[f"/{name}"] = made["secret"]
            for connection in CONNECTIONS.get(name, ()):
                secret = {"access_key_id": world.store.access_key, "secret_access_key": world.store.secret_key}
                _made(
                    client.post(
                        "/v1/connections", json={**connection, "endpoint": world.store.endpoint, "secret": secret}
                    )
                )
            if name == "alpha":
                job = {"source": f"{world.data}/source/0", "destination": f"{world.data}/scheduled", "recursive": True}
                _made(client.post("/v1/schedules", json={"job": job, "cron": "* * * * *", "overlap": "allow"}))
    return tokens


def document(world: SoakWorld, one: Submission) -> dict[str, Any]:
    """Return the body of a submission, or of the quote that it needs."""
    local, number = f"{world.data}/source/{one.source}", one.number
    places = {
        "files": (local, f"{world.data}/copy/{number}"),
        "shared": (local, f"{world.data}/shared/{one.source}"),
        "small": (local, f"{world.small}/{number}"),
        "quoted": (local, f"{world.data}/copy/{number}"),
        "upload": (local, f"s3://{BUCKET}/copy/{number}/"),
        "quoted upload": (local, f"s3://{BUCKET}/copy/{number}/"),
        "multipart": (f"{world.data}/big", f"s3://{BUCKET}/copy/{number}/"),
        "download": (f"s3://{BUCKET}/source/{one.source}/", f"{world.data}/copy/{number}"),
        "connection": (local, f"connection:own/copy/{number}/"),
        "machines": (f"connection:near/source/{one.source}/", f"connection:own/copy/{number}/"),
    }
    source, destination = places[one.kind]
    body = {"source": source, "destination": destination, "recursive": True, "stall_s": 10}
    if one.kind == "machines":
        return {**body, "via": "fleet", "max_cost_usd": 0.5, "limit_bytes_per_s": RATE_BYTES_PER_S}
    if one.kind == "multipart":
        return {**body, "chunk_bytes": PART_BYTES, "limit_bytes_per_s": 3_000_000}
    return {**body, "limit_bytes_per_s": RATE_BYTES_PER_S}


class Clients:
    """Threads that carry out the plan. `sent` has what became of each submission, by its number."""

    def __init__(self, world: SoakWorld, tokens: dict[str, str], plan: Sequence[Submission]) -> None:
        self._world, self._tokens, self._plan = world, tokens, plan
        self.sent: dict[int, Sent] = {}
        self.counts: Counter[str] = Counter()
        self.unanswered: list[str] = []
        self._tasks: queue.PriorityQueue[tuple[float, int, str]] = queue.PriorityQueue()
        for one in plan:
            self._tasks.put((one.at_s, one.number, "submit"))
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        """Begin now."""
        self._began_s = time.monotonic()
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until everything of the plan was sent and answered."""
        for thread in self._threads:
            thread.join()

    @property
    def left(self) -> int:
        """Number of tasks that have not begun."""
        return self._tasks.qsize()

    def ask(self, tenant: str, method: str, path: str, *, loses_answer: bool = False, **others: Any) -> httpx.Response:
        """Return the first answer that is final, on a new connection after each failure. Raises TimeoutError."""
        end_s, timeout_s = time.monotonic() + ANSWER_S, 0.02 if loses_answer else 15.0
        last = ""
        while time.monotonic() < end_s:
            with suppress(httpx.TransportError):
                last = "no answer"
                with httpx.Client(base_url=self._world.url, headers=_bearer(self._tokens[tenant])) as client:
                    answer = client.request(method, path, timeout=timeout_s, **others)
                if answer.status_code < 500 and answer.status_code != 429:
                    return answer
                self.counts[f"answers {answer.status_code}"] += 1
                last = f"{answer.status_code} {answer.text[:200]}"
            if last == "no answer":
                self.counts["answers lost"] += 1
            timeout_s = 15.0
            time.sleep(0.2)
        self.unanswered.append(f"{method} {path} of {tenant}: {last}")
        raise TimeoutError(f"{method} {path}: {last}")

    def _work(self) -> None:
        while True:
            try:
                at_s, number, what = self._tasks.get_nowait()
            except queue.Empty:
                return
            time.sleep(max(0.0, self._began_s + at_s - time.monotonic()))
            with suppress(TimeoutError):  # Recorded as unanswered.
                if what == "submit":
                    self._submit(self._plan[number])
                else:
                    self._change(self._plan[number], what)

    def _submit(self, one: Submission) -> None:
        sent = self.sent[one.number] = Sent(one)
        body = document(self._world, one)
        sent.destination = body["destination"]
        if one.kind.startswith("quoted"):
            quoted = self.ask(one.tenant, "POST", "/v1/quotes", json=body)
            if quoted.status_code != 201:
                sent.status, sent.detail = quoted.status_code, quoted.json()["detail"]
                return
            body = {"quote": quoted.json()["id"]}
        headers = {"Idempotency-Key": one.key}
        made = self.ask(one.tenant, "POST", "/v1/jobs", json=body, headers=headers, loses_answer=one.loses_answer)
        sent.status = made.status_code
        if made.status_code not in (200, 201):
            sent.detail = made.json()["detail"]
            return
        sent.job = made.json()["id"]
        if one.then:
            self._tasks.put((time.monotonic() - self._began_s + 1.0, one.number, one.then))

    def _change(self, one: Submission, what: str) -> None:
        sent = self.sent[one.number]
        if what == "resume" and self._state(one, sent) == "pausing":
            self._tasks.put((time.monotonic() - self._began_s + 1.0, one.number, "resume"))
            return
        answer = self.ask(one.tenant, "POST", f"/v1/jobs/{sent.job}/{what}")
        sent.changed.append(f"{what} {answer.status_code}")
        if what == "pause" and answer.status_code == 202:
            self._tasks.put((time.monotonic() - self._began_s + 2.0, one.number, "resume"))

    def _state(self, one: Submission, sent: Sent) -> str:
        return str(self.ask(one.tenant, "GET", f"/v1/jobs/{sent.job}").json()["state"])


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _made(answer: httpx.Response) -> Any:
    answer.raise_for_status()
    return answer.json()
