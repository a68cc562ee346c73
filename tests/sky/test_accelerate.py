"""`tradewind accelerate up`, `status`, `replan` and `down` in an emulated WAN, with bytes through the proxies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from tradewind.engine.acceleration_life import TICK_S
from tradewind.fleet.journal import FleetJournal

pytest.importorskip("tomllib")

CLIENT, NEAR, SERVER = "azure:canadacentral", "azure:westus2", "gcp:asia-northeast1"
SKY: dict[str, Any] = {
    "scale": 0.01,
    "regions": {
        CLIENT: {"name": "client", "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        NEAR: {"name": "near", "machines": 2, "egress": "16Gbit/s", "ingress": "16Gbit/s"},
        SERVER: {"name": "server", "egress": "7Gbit/s", "ingress": "16Gbit/s"},
    },
    "links": [
        {"between": [CLIENT, SERVER], "rtt_ms": 40, "rate": "5Gbit/s"},
        {"between": [CLIENT, NEAR], "rtt_ms": 20, "rate": "14Gbit/s"},
        {"between": [NEAR, SERVER], "rtt_ms": 20, "rate": "10Gbit/s"},
    ],
}
FLOWS = f"""\
budget = "20 USD"
period = "1d"
machine_time = "6h"
regions = ["{NEAR}"]
window = "200 kB"

[[flow]]
name = "backup"
source = "here"
source_region = "{CLIENT}"
destination = "10.77.3.1:8000"
destination_region = "{SERVER}"
size = "2 GB"
"""
BODY = os.urandom(2_000_000)
#: State of an open connection in /proc/net/tcp.
ESTABLISHED = "01"
#: Only a failing test waits so long: the host may be busy.
PATIENCE_S = 180.0


@pytest.fixture
def world(command: Command) -> Iterator[Command]:
    """A running sky with a file server on server-1. Its files are in the command's home."""
    with running(command, SKY, FLOWS) as world:
        yield world


@contextmanager
def running(command: Command, sky: dict[str, Any], flows: str) -> Iterator[Command]:
    (command.home / "sky.json").write_text(json.dumps(sky))
    (command.home / "flows.toml").write_text(flows)
    (command.home / "www").mkdir()
    (command.home / "www" / "file").write_bytes(BODY)
    command.run("sky", "up", command.home / "sky.json").expect(0)
    words = ["sky", "exec", command.home / "sky.json", "server-1", "--", "python3", "-m", "http.server", "8000"]
    server = subprocess.Popen(
        [str(command.binary), *map(str, words), "-d", str(command.home / "www")],
        env=command.full_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield command
    finally:
        for state in command.run("accelerate", "status", "--json").events:
            command.run("accelerate", "down", state["id"], "--drain", "0s")
        server.terminate()
        server.wait()
        command.run("sky", "down", command.home / "sky.json")


def states(command: Command) -> list[dict[str, Any]]:
    return command.run("accelerate", "status", "--json").expect(0).events


def up(command: Command, *more: str) -> dict[str, Any]:
    """Start the acceleration in the background and return its state."""
    files = "--flows", command.home / "flows.toml", "--sky", command.home / "sky.json"
    (state,) = command.run("accelerate", "up", *files, "--detach", "-y", "--json", *more).expect(0).events
    return state


def usd_for(command: Command, machine_s: float) -> float:
    """Return the cost of the proxy's machine for its minimum time and this time more."""
    up(command)
    (ended,) = command.run("accelerate", "down", "--json", "--drain", "0s").expect(0).events
    (line,) = [line for line in ended["ledger"] if line["kind"] == "machine"]
    return float(line["usd"] + line["unit_usd"] * machine_s)


def download(command: Command, state: dict[str, Any]) -> bytes:
    url = f"http://{state['flows'][0]['listen']}/file"
    words = "sky", "exec", command.home / "sky.json", "client-1", "--", "curl", "-s", "--retry", "9"
    code, body, _ = command.run_bytes(*words, "--retry-all-errors", "--retry-delay", "1", "--max-time", "120", url)
    assert code == 0
    return body


def proxied_download(command: Command, state: dict[str, Any]) -> int:
    """Download until the only proxy has sent the whole file. Return the bytes that it has sent so far.

    On a busy host a proxy may look unhealthy for a moment, and then the flow goes direct.
    """
    before = sent_bytes(states(command)[-1])
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        until(command, lambda now: now["flows"][0]["through"] and now["proxies"][0]["health"] == "healthy")
        assert download(command, state) == BODY
        sent = sent_bytes(after_next_look(command))
        if sent - before > len(BODY):
            return sent
    raise AssertionError("no download went through the proxy")


def after_next_look(command: Command) -> dict[str, Any]:
    """Return a state whose look began after now."""
    now_s = states(command)[-1]["updated_unix_s"]
    return until(command, lambda now: now["updated_unix_s"] > now_s + 2 * TICK_S)


def sent_bytes(state: dict[str, Any]) -> int:
    (proxy,) = state["proxies"]
    return int(proxy.get("bytes_up", 0) + proxy.get("bytes_down", 0))


def machines_of(state: dict[str, Any]) -> int:
    return [line["kind"] for line in state["ledger"]].count("machine")


def charged_bytes(state: dict[str, Any]) -> int:
    return round(1e9 * sum(float(line["quantity"]) for line in state["ledger"] if line["unit"] == "GB"))


def until_failed(command: Command) -> None:
    until(command, lambda now: now["phase"] == "failed", is_final=True)


def until(command: Command, wanted: Callable[[dict[str, Any]], bool], *, is_final: bool = False) -> dict[str, Any]:
    """Wait for a state. Without `is_final`, an acceleration that has ended fails the test at once."""
    end = time.monotonic() + PATIENCE_S
    while not wanted(state := states(command)[-1]):
        assert time.monotonic() < end and (is_final or state["phase"] not in ("ended", "failed")), json.dumps(state)
        time.sleep(0.1)
    return state


def client_of(command: Command) -> dict[str, Any]:
    return command.run("fleet", "list", "--json").expect(0).events[0]


def pid_of(command: Command, name: str) -> int:
    """Return the process of the gateway that runs on a machine of the fleet."""
    fleet = client_of(command)["id"]
    for pid in command.processes():
        words = Path(f"/proc/{pid}/environ").read_bytes()
        if fleet.encode() in words and f'"{name}"'.encode() in words:
            return int(pid)
    raise AssertionError(f"no process of {name}")


def kill_machine(command: Command, name: str) -> None:
    os.kill(pid_of(command, name), signal.SIGKILL)


def block_data_port(command: Command, proxy: str) -> None:
    """Drop what a proxy sends from its data port, to which home has connections. Its control port is another."""
    home = pid_of(command, "home")
    inodes = {
        os.readlink(descriptor).removeprefix("socket:[").removesuffix("]")
        for descriptor in Path(f"/proc/{home}/fd").iterdir()
        if os.readlink(descriptor).startswith("socket:[")
    }
    rows = [line.split() for line in Path(f"/proc/{home}/net/tcp").read_text().splitlines()[1:]]
    there = {row[2].partition(":")[2] for row in rows if row[9] in inodes and row[3] == ESTABLISHED}
    (port,) = {int(port, 16) for port in there}
    enter = ["nsenter", "-t", str(pid_of(command, proxy)), "--net"]
    words = ["ip", "rule", "add", "pref", "1", "ipproto", "tcp", "sport", str(port), "blackhole"]
    subprocess.run([*enter, *words], check=True)


def test_flows_go_through_proxies_past_a_dead_one_and_to_another_plan(world: Command) -> None:
    state = up(world)
    proxy = state["proxies"][0]["name"]
    assert state["flows"][0]["through"] == [proxy]
    sent = proxied_download(world, state)
    through = states(world)[-1]
    assert through["flows"][0]["bytes_down"] > len(BODY) and through["egress_usd"] > 0
    shown = world.run("accelerate", "status").expect(0).stdout
    assert f"through {proxy}" in shown and "predicted rates were off by" in shown
    assert f'proxy="{proxy}",region="{NEAR}"}} 1' in world.run("accelerate", "status", "--prometheus").expect(0).stdout

    kill_machine(world, proxy)
    # A new machine may be there before the direct path is seen.
    until(world, lambda now: not now["flows"][0]["through"] or machines_of(now) == 2)
    assert download(world, state) == BODY
    until(world, lambda now: machines_of(now) == 2)
    before, sent = sent, proxied_download(world, state)
    assert sent > before + len(BODY)

    (world.home / "poor.toml").write_text(FLOWS.replace("20 USD", "0.0001 USD"))
    world.run("accelerate", "replan", "--flows", world.home / "poor.toml").expect(0)
    after = states(world)[0]
    assert (after["flows"][0]["through"], after.get("proxies", [])) == ([], [])
    assert download(world, state) == BODY

    ended = world.run("accelerate", "down", "--drain", "1s").expect(0)
    assert f"{state['id']}  ended" in ended.stdout
    assert f"machine  {proxy} in {NEAR}" in ended.stdout and f"egress   {proxy} in {NEAR}" in ended.stdout
    # The proxy had two machines, and is gone. Nobody has used it since.
    assert (machines_of(states(world)[0]), charged_bytes(states(world)[0])) == (2, sent)
    assert world.run("fleet", "list").expect(0).stdout == ""
    assert world.run("accelerate", "down").expect(3).stderr.startswith("error: no acceleration is running\n")


def test_bytes_that_moved_just_before_the_end_are_charged(world: Command) -> None:
    for _ in range(3):
        state = up(world)
        assert download(world, state) == BODY
        (ended,) = (
            each
            for each in world.run("accelerate", "down", "--json", "--drain", "0s").expect(0).events
            if each["id"] == state["id"]
        )
        (flow,) = ended["flows"]
        if flow.get("achieved_direct_mbps") is None:
            break  # Otherwise its proxy looked unhealthy for a moment, because the host is busy.
    assert charged_bytes(ended) == flow["bytes_up"] + flow["bytes_down"] > len(BODY)


@pytest.mark.slow
def test_a_proxy_whose_data_port_is_blocked_is_avoided_and_replaced(world: Command) -> None:
    state = up(world)
    proxy = state["proxies"][0]["name"]
    assert download(world, state) == BODY
    until(world, lambda now: any(pool.get("ready", 0) for pool in now.get("pools", [])))
    block_data_port(world, proxy)
    blocked = until(world, lambda now: not now["flows"][0]["through"])
    assert f"{proxy}: home cannot connect to it: " in blocked["flows"][0]["reason"]
    assert download(world, state) == BODY
    until(world, lambda now: now["flows"][0]["through"] == [proxy] and now["proxies"][0]["health"] == "healthy")
    assert machines_of(states(world)[0]) == 2
    assert download(world, state) == BODY


def test_small_windows_of_a_proxy_are_reported_and_used_by_a_replan(world: Command) -> None:
    for machine in ("near-1", "near-2"):
        small = ["sh", "-c", "echo 4096 16384 65536 > /proc/sys/net/ipv4/tcp_wmem"]
        world.run("sky", "exec", world.home / "sky.json", machine, "--", *small).expect(0)
    files = world.home / "flows.toml", "--sky", world.home / "sky.json"
    done = world.run("accelerate", "up", *files, "--detach", "-y", "--json").expect(0)
    (state,) = done.events
    (proxy,), (flow,) = state["proxies"], state["flows"]
    assert f"proxies allow less than planned: {proxy['name']} has windows of 29.9 kB instead of 500 MB" in done.stderr
    assert proxy["send_window_bytes"] == pytest.approx(29_948, abs=1) and proxy["receive_window_bytes"] > 200_000
    # One window of 30 kB in each round trip of 20 ms.
    assert flow["predicted_mbps"] == pytest.approx(11.98, abs=0.01)
    assert flow["predicted_s"] == pytest.approx(16_000 / 11.98, rel=0.01)
    assert "windows up to" in world.run("accelerate", "status").expect(0).stdout


@pytest.mark.slow
def test_proxies_that_are_no_faster_are_bypassed(command: Command) -> None:
    # The path over the proxy is slow, which the placement does not know.
    slow = {
        **SKY,
        "links": [{**SKY["links"][0], "rate": "16Gbit/s"}, SKY["links"][1], {**SKY["links"][2], "rate": "1Gbit/s"}],
    }
    with running(command, slow, 'compare_every = "9s"\ncompare_time = "4s"\n' + FLOWS) as world:
        state = up(world)
        assert state["flows"][0]["through"]
        while not (flow := states(world)[0]["flows"][0]).get("reason", "").startswith("proxies gain too little"):
            assert time.time() - state["began_unix_s"] < 2 * PATIENCE_S, flow
            assert download(world, state) == BODY
        assert flow["through"] == [] and flow["achieved_direct_mbps"] > flow["achieved_mbps"]
        # During a trial of the proxies, the flow is on its placed path for a moment.
        reason = "not on its placed path: proxies gain too little"
        while reason not in (shown := world.run("accelerate", "status").expect(0).stdout):
            assert time.time() - state["began_unix_s"] < 2 * PATIENCE_S, shown
            time.sleep(0.2)


@contextmanager
def starting(world: Command) -> Iterator[subprocess.Popen[bytes]]:
    """Run `up`, and yield its process while the machines start."""
    words = "accelerate", "up", "--flows", str(world.home / "flows.toml"), "--sky", str(world.home / "sky.json"), "-y"
    process = subprocess.Popen(
        [str(world.binary), *words],
        env=world.full_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end, journal = time.monotonic() + PATIENCE_S, FleetJournal(world.state)
        while not list(journal.records()):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_supervisor_ended_before_its_flows_run_leaves_nothing(world: Command) -> None:
    with starting(world) as interrupted:
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(PATIENCE_S) == 130
    assert world.run("fleet", "list").expect(0).stdout == ""
    assert [(state["phase"], state["reason"]) for state in states(world)] == [("failed", "interrupted")]

    with starting(world) as killed:
        killed.kill()
        killed.wait()
    (fleet,) = world.run("fleet", "list", "--json").expect(0).events
    _, state = states(world)
    assert (state["phase"], state["fleets"]) == ("failed", [fleet["id"]])
    assert f"fleet {fleet['id']} may still run" in world.run("accelerate", "status").expect(0).stdout
    world.run("accelerate", "down").expect(0)
    assert world.run("fleet", "list").expect(0).stdout == ""
    _, state = states(world)
    assert state["phase"] == "ended" and not state.get("fleets")


@pytest.mark.slow
def test_a_supervisor_whose_lines_cannot_be_written_goes_on(world: Command) -> None:
    """As on a full disk, where `--detach` writes them."""
    words = "accelerate", "up", "--flows", str(world.home / "flows.toml"), "--sky", str(world.home / "sky.json"), "-y"
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [str(world.binary), *words], env=world.full_environment(), stdout=subprocess.PIPE, stderr=full
        )
    try:
        assert process.stdout is not None
        with process.stdout:
            assert b"127.0.0.1" in process.stdout.readline()
        kill_machine(world, states(world)[-1]["proxies"][0]["name"])
        state = until(world, lambda now: machines_of(now) == 2 and now["proxies"][0]["health"] == "healthy")
        assert download(world, state) == BODY
        world.run("accelerate", "down", "--drain", "0s").expect(0)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_replan_that_cannot_be_wired_leaves_no_machines(command: Command) -> None:
    with running(command, SKY, FLOWS.replace("20 USD", "0.0001 USD")) as world:
        state = up(world)
        assert not state.get("proxies")
        # Nobody has this address, so the proxy of this machine cannot listen there.
        (world.home / "other.toml").write_text(FLOWS + 'listen = "192.0.2.1:8000"\nclients = ["10.0.0.0/8"]\n')
        refused = world.run("accelerate", "replan", "--flows", world.home / "other.toml").expect(2)
        assert f"acceleration {state['id']} continues unchanged" in refused.stderr
        assert not states(world)[0].get("proxies")
        assert [line["kind"] for line in states(world)[0]["ledger"]] == ["machine"]
        assert not client_of(world).get("machines")
        assert download(world, state) == BODY


@pytest.mark.slow
def test_the_machines_of_a_stopped_supervisor_end_with_their_leases(world: Command) -> None:
    # Under a ceiling that is near, leases are short.
    ceiling_usd = usd_for(world, 75.0)
    state = up(world, "--max-cost", f"{ceiling_usd}USD")
    fleet = client_of(world)
    os.kill(fleet["client_pid"], signal.SIGSTOP)
    try:
        end = time.monotonic() + PATIENCE_S
        while client_of(world)["alive"]:
            assert time.monotonic() < end
            time.sleep(0.5)
    finally:
        os.kill(fleet["client_pid"], signal.SIGKILL)
    until_failed(world)
    world.run("accelerate", "down").expect(0)
    (ended,) = [each for each in states(world) if each["id"] == state["id"]]
    assert ended["phase"] == "ended" and ended["ledger"][0]["kind"] == "machine"


@pytest.mark.slow
def test_a_stopped_supervisor_is_shown_and_a_killed_one_is_resumed(world: Command) -> None:
    state = up(world, "--max-cost", "5USD")
    (former,) = world.run("fleet", "list", "--json").events
    pid = former["client_pid"]
    os.kill(pid, signal.SIGSTOP)
    until(world, lambda now: now["supervision"] == "stopped")
    shown = world.run("accelerate", "status").expect(0).stdout
    assert f"process {pid}, is stopped" in shown and f"`kill -CONT {pid}` continues it" in shown
    for words in (("up", "--resume", state["id"]), ("down",), ("replan",)):
        refused = world.run("accelerate", *words)
        assert refused.code != 0 and "is stopped" in refused.stderr and f"kill -CONT {pid}" in refused.stderr

    os.kill(pid, signal.SIGKILL)
    until_failed(world)
    (killed,) = states(world)
    assert killed["fleets"] == [former["id"]]
    again = "accelerate", "up", "--resume", state["id"], "--detach", "--json"
    (resumed,) = world.run(*again).expect(0).events
    # The same acceleration has other machines, and the cost of both counts.
    assert (resumed["id"], resumed["usd_max"], resumed["phase"]) == (state["id"], 5.0, "running")
    (fleet,) = world.run("fleet", "list", "--json").expect(0).events
    assert fleet["id"] != former["id"]
    assert machines_of(resumed) == 2
    assert download(world, resumed) == BODY
    assert world.run(*again).code != 0 and len(world.run("fleet", "list", "--json").events) == 1

    # The wish of the refused `down` was made before the resumption, and is not carried out.
    assert states(world)[0]["phase"] == "running"
    os.kill(fleet["client_pid"], signal.SIGKILL)
    until_failed(world)
    assert "its supervisor was killed" in world.run("accelerate", "down").expect(0).stdout
    assert world.run("fleet", "list").expect(0).stdout == ""
    assert states(world)[0]["phase"] == "ended"
    assert "is not running" in world.run("accelerate", "replan", state["id"]).expect(2).stderr
    assert "has ended" in world.run("accelerate", "up", "--resume", state["id"]).expect(2).stderr


@pytest.mark.slow
def test_it_ends_before_the_ceiling(world: Command) -> None:
    # Enough for minutes of machines: it ends because of its egress.
    ceiling_usd = usd_for(world, 300.0)
    state = up(world, "--max-cost", f"{ceiling_usd}USD")
    while states(world)[-1]["phase"] == "running":
        assert time.time() - state["began_unix_s"] < PATIENCE_S
        url = f"http://{state['flows'][0]['listen']}/file"
        world.run("sky", "exec", world.home / "sky.json", "client-1", "--", "curl", "-s", "-o", "/dev/null", url)
    ended = until(world, lambda now: now["phase"] == "ended", is_final=True)
    assert ended["id"] == state["id"] and ended["egress_usd"] > ended["machines_usd"] > 0
    assert ended["machines_usd"] + ended["egress_usd"] < ceiling_usd
    assert ended["reason"] == "the ceiling is close"
    assert world.run("fleet", "list").expect(0).stdout == ""
