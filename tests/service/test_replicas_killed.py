"""Three servers behind a balancer, killed at random while they run many jobs: none is lost, none runs twice."""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.debian import debian_program
from testbed.postgres import Postgres
from testbed.servers import InstallError
from testbed.servers.process import free_port
from tests.service.replicas import balanced
from tests.service.server import Server, do_not_overlap

JOBS = 200
FILES = 3
#: Jobs that all write to the same place, so that they must run one after the other.
SHARED_JOBS = 10
BYTES = 100_000
RATE_BYTES_PER_S = 200_000
KILL_EVERY_S = 1.0
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
JOBS_S_MAX = 330.0


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[str, list[Server]]]:
    try:
        debian_program("haproxy")
        postgres = Postgres()
    except InstallError as error:
        pytest.skip(str(error))
    ports = [free_port() for _ in range(3)]
    options = ["--database", postgres.url, "--lease", "3", "--jobs", "4"]
    servers = [
        Server(tmp_path, *options, "--listen", f"127.0.0.1:{one}", log=f"{one}.log", **postgres.environment)
        for one in ports
    ]
    servers[0].prepare("--migrate")
    try:
        for server in servers:
            server.start()
        with balanced(ports, tmp_path) as url:
            yield url, servers
    finally:
        for server in servers:
            if server.process is not None:
                server.kill()
        postgres.close()


def answered(client: httpx.Client, retries: Counter[str], ask: Callable[[], httpx.Response]) -> httpx.Response:
    """Return the first answer that is not 503, on a new connection after each failure."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        with suppress(httpx.TransportError):
            answer = ask()
            if answer.status_code not in (429, 503):
                return answer
        retries["again"] += 1
        time.sleep(0.1)
    raise AssertionError("no answer within 60 s")


class Reader:
    """Reads the list of jobs through the balancer all the time. `gaps_s` has the wait of each read."""

    def __init__(self, url: str, token: str, retries: Counter[str], is_over: threading.Event) -> None:
        self.gaps_s: list[float] = []
        self.bad: list[str] = []
        self._headers, self._url, self._retries, self._is_over = (
            {"Authorization": f"Bearer {token}"},
            url,
            retries,
            is_over,
        )
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with httpx.Client(base_url=self._url, headers=self._headers, timeout=30) as client:
            while not self._is_over.wait(0.05):
                began_s = time.monotonic()
                answer = answered(client, self._retries, lambda: client.get("/v1/jobs?limit=5"))
                self.gaps_s.append(time.monotonic() - began_s)
                if answer.status_code != 200:
                    self.bad.append(answer.text)


def write_sources(data: Path) -> None:
    for job in range(JOBS):
        for number in range(FILES):
            path = data / "source" / f"{job}" / f"{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(BYTES))


def check_copies(data: Path, job: int, objects: list[dict[str, Any]]) -> None:
    """Check that a job has written each file once, and the bytes of a copy that only one job writes."""
    names = sorted(Path(one["source"]).name for one in objects)
    assert names == [f"{number}" for number in range(FILES)], json.dumps(objects)
    for number in range(FILES) if job >= SHARED_JOBS else ():
        copy = data / "copy" / f"{job}" / f"{number}"
        assert copy.read_bytes() == (data / "source" / f"{job}" / f"{number}").read_bytes()


@pytest.mark.slow
def test_no_job_is_lost_and_none_runs_twice(replicas: tuple[str, list[Server]]) -> None:
    url, servers = replicas
    data, state = servers[0].data, servers[0].state
    write_sources(data)
    token = (state / "admin.token").read_text().strip()
    retries: Counter[str] = Counter()
    kills: Counter[str] = Counter()
    is_over = threading.Event()

    def kill_at_random() -> None:
        chance = random.Random(1)
        while not is_over.wait(KILL_EVERY_S):
            server = chance.choice(servers)
            number = chance.choice(SIGNALS)
            server.kill(number)
            kills[number.name] += 1
            server.start()

    killer = threading.Thread(target=kill_at_random)
    began_s = time.monotonic()
    killer.start()
    reader = Reader(url, token, retries, is_over)
    ids: dict[int, str] = {}
    reads = 0
    try:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:

            def ask(method: str, path: str, **others: Any) -> httpx.Response:
                return answered(client, retries, lambda: client.request(method, path, **others))

            for job in range(JOBS):
                end = "shared" if job < SHARED_JOBS else job
                body = {"source": f"{data}/source/{job}", "destination": f"{data}/copy/{end}", "recursive": True}
                body["limit_bytes_per_s"] = RATE_BYTES_PER_S
                made = ask("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": f"job{job}"})
                assert made.status_code in (200, 201), made.text
                ids[job] = made.json()["id"]
            states: Counter[str] = Counter()
            while states["done"] < JOBS and time.monotonic() - began_s < JOBS_S_MAX:
                states.clear()
                for job_id in ids.values():
                    shown = ask("GET", f"/v1/jobs/{job_id}")
                    reads += 1
                    assert shown.status_code == 200, shown.text
                    states[shown.json()["state"]] += 1
            assert states == {"done": JOBS}
            took_s = time.monotonic() - began_s
            receipts = [ask("GET", f"/v1/jobs/{one}/receipt").json() for one in ids.values()]
            written = [ask("GET", f"/v1/jobs/{one}/objects").json()["objects"] for one in ids.values()]
    finally:
        is_over.set()
        killer.join()
        reader.thread.join()
    assert len(set(ids.values())) == JOBS
    assert len(os.listdir(state / "engine" / "jobs")) == JOBS, "the engine has one job for each"
    for job, objects in zip(ids, written, strict=True):
        check_copies(data, job, objects)
    assert all(do_not_overlap([receipt]) for receipt in receipts)
    assert do_not_overlap(receipts[:SHARED_JOBS])
    assert not reader.bad
    # Otherwise the faults came at no bad moment, and this test has shown nothing.
    assert all(kills[number.name] > 0 for number in SIGNALS)
    assert any(len(receipt["runs"]) > 1 for receipt in receipts)
    print(
        f"{JOBS} jobs in {took_s:.0f} s, {dict(kills)} kills, {reads + len(reader.gaps_s)} reads "
        f"(longest wait {max(reader.gaps_s):.1f} s), {retries['again']} requests sent again, "
        f"{sum(len(one['runs']) > 1 for one in receipts)} jobs with several runs"
    )
