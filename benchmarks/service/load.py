"""The service under load: many jobs that wait, some that run, and clients that follow events while others read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tradewind.model.records import dataclass

QUEUED, RUNNING, STREAMS, READS = 1_000, 50, 200, 1_000
FILES, FILE_BYTES, RATE_BYTES_PER_S = 200, 100_000, 20_000
"""Each job would take 1,000 s, so the ones that run do so for the whole measurement."""
READERS = 4
"""Clients that read at the same time."""
TENANTS = 4
"""Tenants over which streams and reads are spread: a tenant has at most 64 streams, a token 100 requests per second."""
PAUSE_S = 0.05
"""Pause of a reader between two reads."""
SETTLED_S = 3
"""Time for the streams to open, before the reads are measured."""


@dataclass(frozen=True)
class Load:
    """Number of jobs that wait, jobs that run, and clients that follow events."""

    queued: int
    running: int
    streams: int


def measure_load(load: Load) -> str:
    """Run the scenario and return its figures as a Markdown table."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        (data / "source").mkdir(parents=True)
        for number in range(FILES):
            (data / "source" / f"{number}").write_bytes(os.urandom(FILE_BYTES))
        command = [sys.executable, "-m", "tradewind.service", "--state", f"{folder}/state", "--jobs", str(load.running)]
        command += ["--listen", "127.0.0.1:0", "--allow-path", str(data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = next(line.split()[-1] for line in process.stdout if line.startswith("listening on "))
            token = (Path(folder) / "state" / "admin.token").read_text().strip()
            try:
                return asyncio.run(_measure(load, url, token, data, process.pid))
            finally:
                process.terminate()


async def _measure(load: Load, url: str, token: str, data: Path, pid: int) -> str:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        headers = await _tenants(client, token)
        begun_s = time.monotonic()
        names = [
            await _submit(client, headers[number % TENANTS], data, number)
            for number in range(load.queued + load.running)
        ]
        submitted_s = time.monotonic() - begun_s
        admin = {"Authorization": f"Bearer {token}"}
        while f'{{state="running"}} {load.running}.0' not in (await client.get("/metrics", headers=admin)).text:
            await asyncio.sleep(0.2)
        # All jobs use one link, which the service lets run more jobs step by step.
        grown_s = time.monotonic() - begun_s - submitted_s
        jobs = list(enumerate(names))
        streams = [asyncio.create_task(_follow(client, headers[n % TENANTS], one)) for n, one in jobs[: load.streams]]
        await asyncio.sleep(SETTLED_S)
        load_before, cpu_before_s, began_s = os.getloadavg()[0], _cpu_s(pid), time.monotonic()
        readers = (_read(client, headers[reader % TENANTS], names[reader % TENANTS]) for reader in range(READERS))
        times = sorted(one for found in await asyncio.gather(*readers) for one in found)
        cores = (_cpu_s(pid) - cpu_before_s) / (time.monotonic() - began_s)
        open_streams = sum(not stream.done() for stream in streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    rss = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    rows = [
        ("jobs submitted per second", f"{(load.queued + load.running) / submitted_s:.0f}"),
        ("jobs that wait, that run", f"{load.queued:,}, {load.running}"),
        ("from the last submission until all of these run", f"{grown_s:.0f} s"),
        ("open event streams", f"{open_streams}"),
        ("reads", f"{len(times):,}"),
        ("read, median", f"{times[len(times) // 2] * 1e3:.0f} ms"),
        ("read, 99%", f"{times[int(len(times) * 0.99)] * 1e3:.0f} ms"),
        ("cores used by the server, without its gateways", f"{cores:.2f}"),
        ("load of the host, before and after the reads", f"{load_before:.1f}, {os.getloadavg()[0]:.1f}"),
        ("memory of the server, highest", f"{int(rss.split()[1]) / 1024:.0f} MiB"),
    ]
    return "\n".join(["| figure | value |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)])


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process without its children [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _tenants(client: httpx.AsyncClient, token: str) -> list[dict[str, str]]:
    """Make tenants; return the headers of each one's token."""
    admin = {"Authorization": f"Bearer {token}"}
    found = []
    for number in range(TENANTS):
        name = f"tenant{number}"
        (await client.post("/v1/tenants", json={"name": name}, headers=admin)).raise_for_status()
        made = await client.post("/v1/tokens", json={"tenant": name, "role": "operator"}, headers=admin)
        found.append({"Authorization": f"Bearer {made.raise_for_status().json()['token']}"})
    return found


async def _submit(client: httpx.AsyncClient, headers: dict[str, str], data: Path, number: int) -> str:
    """Submit a job, and return its id."""
    body = {"source": f"{data}/source", "destination": f"{data}/copy{number}", "recursive": True}
    body |= {"limit_bytes_per_s": RATE_BYTES_PER_S}
    while True:
        key = {"Idempotency-Key": f"{number}"}
        answer = await client.post("/v1/jobs", json=body, headers=headers | key)
        if answer.status_code != 429:
            name: str = answer.raise_for_status().json()["id"]
            return name
        await asyncio.sleep(0.2)


async def _follow(client: httpx.AsyncClient, headers: dict[str, str], job_id: str) -> None:
    async with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_raw():
            pass


async def _read(client: httpx.AsyncClient, headers: dict[str, str], job_id: str) -> list[float]:
    """Return the time of each read [s]: of one job, and of a page of jobs."""
    times = []
    for number in range(READS // READERS):
        begun_s = time.perf_counter()
        path = f"/v1/jobs/{job_id}" if number % 2 else "/v1/jobs"
        (await client.get(path, headers=headers)).raise_for_status()
        times.append(time.perf_counter() - begun_s)
        await asyncio.sleep(PAUSE_S)
    return times
