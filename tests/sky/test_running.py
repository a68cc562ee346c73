"""Starting, changing and stopping a sky: nothing is left behind in any case."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.sky import ping, sink
from tests.sky.conftest import Make
from tradewind.errors import SkyError, SkyInvalid
from tradewind.sky.running import Sky

WAIT_S = 60
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
NEIGHBOURS = (
    {"site:a": {"name": "a"}, "site:b": {"name": "b"}},
    [{"between": ["site:a", "site:b"], "rtt_ms": 20, "rate": "100Mbit/s"}],
)


def sleeper(sky: Sky, machine: str) -> subprocess.Popen[bytes]:
    """Start a process in a machine. Its first output shows that it runs there."""
    process = sky.popen(machine, ["sh", "-c", "echo here; exec sleep 600"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    process.stdout.close()
    return process


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def send_datagrams(sky: Sky, src: str, dst: str, count: int = 1) -> None:
    code = (
        "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for _ in range(int(sys.argv[2])): s.sendto(b'x', (sys.argv[1], 9))"
    )
    sky.run(src, [sys.executable, "-c", code, sky.machines[dst].address, str(count)], check=True)


def counted(sky: Sky, src: str, dst: str, what: str) -> int:
    return sum(getattr(path, what) for path in sky.stats().paths if (path.src, path.dst) == (src, dst))


def test_machines_see_each_other_and_nothing_else(pair: Sky) -> None:
    with sink(pair, "b-1") as address:
        assert ping(pair, "a-1", address, count=3)["min_ms"] >= 20
    devices = pair.run("a-1", ["cat", "/proc/net/dev"], capture_output=True, text=True).stdout
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo", "wan0"]


def test_a_command_becomes_the_program_itself(pair: Sky) -> None:
    assert pair.run("a-1", ["sh", "-c", "exit 7"]).returncode == 7
    missing = pair.run("a-1", ["/no/such/program"], stderr=subprocess.PIPE, text=True)
    assert missing.returncode == 127
    assert "error: /no/such/program" in missing.stderr
    with pytest.raises(SkyError, match="no machine 'c-1'"):
        pair.command("c-1", ["true"])


@pytest.mark.alone
@pytest.mark.host
def test_nothing_is_left_after_an_orderly_end(make_sky: Make) -> None:
    allowed = ALLOWED.read_text()
    sky = make_sky(*NEIGHBOURS)
    assert ALLOWED.read_text() == allowed, "restored as soon as the machines have chosen"
    process, folder = sleeper(sky, "b-1"), sky.folder
    guards = children_of(sky.pid)
    sky.down()
    assert process.wait(WAIT_S) == -signal.SIGKILL
    assert not folder.exists()
    assert guards
    assert not any(Path(f"/proc/{guard}").exists() for guard in guards)
    sky.down()


def test_nothing_is_left_after_a_crash(make_sky: Make) -> None:
    sky = make_sky(*NEIGHBOURS)
    processes = [sleeper(sky, machine) for machine in ("a-1", "b-1")]
    (guard,) = children_of(sky.pid)
    gone = os.pidfd_open(guard)
    os.kill(sky.pid, signal.SIGKILL)
    for process in processes:
        assert process.wait(WAIT_S) == -signal.SIGKILL
    assert select.select([gone], [], [], WAIT_S)[0], "the guard ends after its work"
    os.close(gone)
    with pytest.raises(SkyError, match="does not answer"):
        sky.stats()


def test_a_sky_ends_with_the_process_that_owns_it(tmp_path: Path, make_sky: Make) -> None:
    code = """
import json, os, subprocess, sys
from pathlib import Path
from tradewind.sky.file import network_from_document
from tradewind.sky.running import Sky
sky = Sky.up(network_from_document(json.loads(sys.argv[1]), Path()), folder=Path(sys.argv[2]))
process = sky.popen("a-1", ["sleep", "600"])
print(sky.pid, process.pid, flush=True)
sys.stdin.read()
"""
    document = json.dumps({"regions": NEIGHBOURS[0], "links": NEIGHBOURS[1]})
    owner = subprocess.Popen(
        [sys.executable, "-c", code, document, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2
    ends = [os.pidfd_open(pid) for pid in pids]
    owner.kill()
    owner.wait()
    for end in ends:
        assert select.select([end], [], [], WAIT_S)[0]
        os.close(end)
    owner.stdin.close()
    owner.stdout.close()


def test_a_folder_may_be_deeper_than_a_socket_address(tmp_path: Path, make_sky: Make) -> None:
    folder = tmp_path / ("deep" * 30) / ("deeper" * 10)
    with make_sky(*NEIGHBOURS, folder=folder) as sky:
        assert Sky.attach(folder).describe().keys() == sky.machines.keys()
        with pytest.raises(SkyError, match="is already running"):
            make_sky(*NEIGHBOURS, folder=folder)


def test_skies_run_beside_each_other(make_sky: Make) -> None:
    near, far = make_sky(*NEIGHBOURS), make_sky(NEIGHBOURS[0], [{**NEIGHBOURS[1][0], "rtt_ms": 200}])
    assert near.machines["b-1"].address == far.machines["b-1"].address
    with sink(near, "b-1") as address, sink(far, "b-1"):
        assert ping(near, "a-1", address, count=3)["min_ms"] < 200
        assert ping(far, "a-1", address, count=3)["min_ms"] >= 200


def test_a_frozen_machine_stops_and_continues(pair: Sky) -> None:
    process = sleeper(pair, "b-1")
    pair.freeze("b-1")
    assert pair.describe()["b-1"].state == "frozen"
    assert os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    send_datagrams(pair, "a-1", "b-1", 3)
    assert counted(pair, "a-1", "b-1", "packets") == 3
    pair.thaw("b-1")
    assert os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    with sink(pair, "b-1") as address:
        assert ping(pair, "a-1", address, count=2)["min_ms"] >= 20
    process.kill()
    process.wait()


def test_a_machine_that_vanishes_takes_its_processes_with_it(pair: Sky) -> None:
    process, other = sleeper(pair, "b-1"), sleeper(pair, "a-1")
    pair.vanish("site:b")
    assert process.wait(WAIT_S) == -signal.SIGKILL
    assert other.poll() is None
    send_datagrams(pair, "b-1", "a-1")
    assert counted(pair, "b-1", "a-1", "cut") == 1
    pair.restore("b-1")
    send_datagrams(pair, "b-1", "a-1")
    assert counted(pair, "b-1", "a-1", "packets") == 1
    other.kill()
    other.wait()


def test_a_link_is_cut_from_one_side_only(pair: Sky) -> None:
    pair.set_link("a-1", "b-1", one_way=True, up=False)
    send_datagrams(pair, "a-1", "b-1")
    assert counted(pair, "a-1", "b-1", "cut") == 1
    send_datagrams(pair, "b-1", "a-1")
    assert counted(pair, "b-1", "a-1", "packets") == 1


def test_links_change_while_they_are_used(pair: Sky) -> None:
    with sink(pair, "b-1") as address:
        assert ping(pair, "a-1", address, count=3)["min_ms"] < 150
        pair.set_link("site:a", "site:b", rtt_ms=150, rate_mbps=20, loss=0)
        assert ping(pair, "a-1", address, count=3)["min_ms"] >= 150
    assert {(link["rate_bps"], link["delay_us"]) for link in pair.links()} == {(20_000_000, 75_000)}


@pytest.mark.alone
@pytest.mark.host
def test_caps_and_congestion_control_change_live(pair: Sky) -> None:
    chosen = "/proc/sys/net/ipv4/tcp_congestion_control"
    assert pair.run("a-1", ["cat", chosen], capture_output=True, text=True).stdout == "cubic\n"
    allowed = ALLOWED.read_text()
    pair.set_machine("a-1", egress_mbps=50, congestion_control="reno")
    assert pair.run("a-1", ["cat", chosen], capture_output=True, text=True).stdout == "reno\n"
    assert pair.run("b-1", ["cat", chosen], capture_output=True, text=True).stdout == "cubic\n"
    assert ALLOWED.read_text() == allowed


def test_invalid_changes_are_refused(pair: Sky) -> None:
    with pytest.raises(SkyError, match="no machine and no region site:c"):
        pair.set_link("site:a", "site:c", loss=0.1)
    with pytest.raises(SkyError, match="no link from a-1 to a-1"):
        pair.set_link("a-1", "a-1", loss=0.1)
    with pytest.raises(SkyError, match="out of range"):
        pair.set_link("a-1", "b-1", loss=1.5)
    with pytest.raises(SkyError, match="rate_bps 0 is not between"):
        pair.set_link("a-1", "b-1", rate_mbps=0)
    with pytest.raises(SkyError, match="no congestion control vegas2"):
        pair.set_machine("a-1", congestion_control="vegas2")


def test_an_overloaded_emulator_reports_that(pair: Sky) -> None:
    pair.set_link("a-1", "b-1", rtt_ms=1000)
    send_datagrams(pair, "a-1", "b-1", 50)
    sent_s = time.monotonic()
    # Suspend the emulator for longer than its packets travel, like an overloaded host.
    os.kill(pair.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(pair.pid, signal.SIGCONT)
    assert time.monotonic() - sent_s > 0.5
    stats = pair.stats()
    assert stats.delivered
    assert stats.invalid
    with pytest.raises(SkyInvalid, match="late on average"):
        pair.check_valid()
    pair.reset_stats()
    pair.check_valid()
