"""`boot.sh`, run as root by machines that really boot, against a real owner."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds.booter import BootedMachine, Booter
from testbed.clouds.lan import Lan, lan_unavailable
from testbed.clouds.programs import program_server, program_source
from tests.fleet.worlds import wait_until
from tradewind.errors import GatewayError
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.boot.user_data import ProgramSource, user_data
from tradewind.fleet.home import start_owner
from tradewind.fleet.provider import Home
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import FleetOwner, JoinToken
from tradewind.model.files import private_folder
from tradewind.model.split import SplitListener, SplitProgram

#: `TCP_BUFFER_BYTES` of crates/gateway/src/limits.rs.
LARGE_BUFFER_BYTES = 1_100_000_000


class Stage:
    def __init__(self, booter: Booter, owner: FleetOwner, fleet_folder: Path, source: ProgramSource) -> None:
        self.booter, self.owner, self.folder, self.source = booter, owner, fleet_folder, source
        self.client = GatewayClient(f"unix:{fleet_folder}/control/one")

    def boot(self, *sources: ProgramSource, lease_s: int = 600, **settings: Any) -> BootedMachine:
        token = JoinToken.new()
        self.owner.add("one", token)
        join = self.owner.join("one", token).listening(f"0.0.0.0:{CONTROL_PORT}", f"0.0.0.0:{DATA_PORT}")
        text = user_data(join, sources or (self.source,), lease_s, "x:here", **settings)
        machine = self.booter.boot("one", text)
        self.owner.add("one", token, dial=f"{machine.address}:{CONTROL_PORT}")
        return machine

    def answers(self) -> bool:
        try:
            return bool(self.client.version(5.0)["data_address"] == f"0.0.0.0:{DATA_PORT}")
        except GatewayError:
            return False


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    binary, folder = find_gateway(), private_folder(tmp_path / "fleet")
    owner = start_owner(binary, folder, Home(), tmp_path / "logs")
    try:
        with (
            Lan() as lan,
            program_server(lan.address, binary, tmp_path / "programs") as url,
            Booter(lan, tmp_path / "machines") as booter,
        ):
            yield Stage(booter, owner, folder, program_source(url, binary))
    finally:
        owner.close(0.0)


def test_a_machine_downloads_the_program_and_joins_its_fleet(stage: Stage) -> None:
    machine = stage.boot()
    wait_until(stage.answers)
    assert "tradewind: downloaded" in machine.console
    # The token is nowhere but in the user data, which works once.
    arguments = [_arguments(pid) for pid in machine.pids()]
    assert any("serve --join" in words for words in arguments)
    assert not any("token_hex" in words for words in arguments)


def test_a_split_proxy_gets_large_windows_and_bbr(stage: Stage) -> None:
    stage.boot()
    wait_until(stage.answers)
    assert f" {LARGE_BUFFER_BYTES}" not in stage.client.metrics(), "transfers do not change the machine"
    program = SplitProgram((SplitListener("data", "hop"),), ("192.0.2.1:1",), congestion_control="bbr")
    status = stage.client.put_split(program)
    assert (status.receive_buffer_bytes_max, status.send_buffer_bytes_max) == (LARGE_BUFFER_BYTES, LARGE_BUFFER_BYTES)
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert "bbr" not in available or status.congestion_control == "bbr"


def test_a_machine_ends_with_its_gateway(stage: Stage) -> None:
    machine = stage.boot()
    wait_until(stage.answers)
    (gateway,) = machine.pids("serve --join")
    os.kill(gateway, signal.SIGKILL)
    wait_until(machine.ended.is_set)
    assert "the gateway ended with 137" in machine.console


def test_a_machine_ends_when_its_lease_expires(stage: Stage) -> None:
    machine = stage.boot(lease_s=1)
    wait_until(machine.ended.is_set)
    assert "the gateway ended with 0" in machine.console


def test_a_gateway_says_that_the_cloud_takes_its_machine_back_and_works_until_shortly_before(stage: Stage) -> None:
    """It drains 12 s before the end."""
    machine = stage.boot(notice_s=16, notice_command="test -e /run/notice")
    wait_until(stage.answers)
    said = stage.client.version(5.0)
    assert said["notice"] == {"leaves_in_s": None} and said["booted_ms_ago"] > 0
    assert stage.owner.leaving() == {}
    machine.path("/run/notice").touch()
    wait_until(lambda: bool(stage.owner.leaving()))
    assert 0 <= stage.owner.leaving()["one"] <= 4
    wait_until(machine.ended.is_set)
    assert "the cloud takes the machine back" in machine.console
    assert "the gateway ended with 0" in machine.console


def test_a_machine_with_a_frozen_gateway_ends_soon_after_its_lease(stage: Stage) -> None:
    machine = stage.boot(lease_s=600, late_s=1, look_s=1)
    wait_until(stage.answers)
    stage.client.renew_lease(3)
    (gateway,) = machine.pids("serve --join")
    os.kill(gateway, signal.SIGSTOP)
    wait_until(machine.ended.is_set)
    assert "the lease has expired" in machine.console


def test_a_machine_that_is_booted_again_ends(stage: Stage) -> None:
    """cloud-init runs user data at the first boot only: without its script a rebooted machine would run for ever."""
    machine = stage.boot()
    wait_until(stage.answers)
    name = "/var/lib/cloud/scripts/per-boot/tradewind-end"
    script = machine.path(name)
    assert script.stat().st_mode & 0o777 == 0o700
    enter = ["nsenter", "-t", str(machine.init_pid), "--mount", "--pid", "--net", "env", "PATH=/run/bin:/usr/bin:/bin"]
    subprocess.run([*enter, name], check=True)
    assert not machine.ended.is_set() and stage.answers(), "it is still the same boot"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    script.write_text(script.read_text().replace(boot, "another-boot"))
    subprocess.run([*enter, name], check=False)
    wait_until(machine.ended.is_set)


def test_a_renewed_lease_keeps_the_machine(stage: Stage) -> None:
    machine = stage.boot(lease_s=600, late_s=1, look_s=1)
    wait_until(stage.answers)
    stage.client.renew_lease(900)
    left_s = int(machine.path("/run/tradewind/lease").read_text()) - time.clock_gettime(time.CLOCK_BOOTTIME)
    assert 850 < left_s <= 900
    assert not machine.ended.is_set()


def test_a_program_with_another_hash_is_not_run(stage: Stage) -> None:
    machine = stage.boot(replace(stage.source, sha256="0" * 64))
    wait_until(machine.ended.is_set)
    assert f"the program at {stage.source.url} is not the one with SHA-256 000" in machine.console
    assert not stage.answers()


def test_a_machine_without_a_program_for_its_processor_ends(stage: Stage) -> None:
    machine = stage.boot(replace(stage.source, processor="pdp11"))
    wait_until(machine.ended.is_set)
    assert "there is no gateway program for" in machine.console


def test_a_program_that_comes_late_is_downloaded(stage: Stage, tmp_path: Path) -> None:
    served = tmp_path / "programs" / "tradewind-gateway"
    hidden = served.rename(served.with_name("hidden"))
    machine = stage.boot()
    wait_until(lambda: "the program cannot be downloaded from" in machine.console)
    hidden.rename(served)
    wait_until(stage.answers)


def test_a_machine_that_does_not_get_its_program_ends(stage: Stage, tmp_path: Path) -> None:
    machine = stage.boot(replace(stage.source, url=stage.source.url + "-missing"), boot_s=2, late_s=0, look_s=1)
    wait_until(machine.ended.is_set)
    assert "the lease has expired" in machine.console


def test_a_compressed_program_is_unpacked(stage: Stage, tmp_path: Path) -> None:
    """Its hash is that of the program itself, so it can be uploaded in either form."""
    served = tmp_path / "programs" / "tradewind-gateway"
    program = served.read_bytes()
    served.unlink()  # It may be a link to the program that all tests use.
    served.write_bytes(gzip.compress(program, 1))
    machine = stage.boot()
    wait_until(stage.answers)
    assert [path.name for path in machine.path("/run/tradewind").glob("gateway*")] == ["gateway"]


def test_a_program_that_has_moved_is_downloaded_from_there(stage: Stage, tmp_path: Path) -> None:
    served = tmp_path / "programs" / "tradewind-gateway"
    (moved := served.with_name("moved")).mkdir()
    os.link(served, moved / "index.html")
    stage.boot(replace(stage.source, url=stage.source.url.replace(served.name, moved.name)))
    wait_until(stage.answers)


def test_a_proxy_is_not_asked_for_what_the_machine_knows_about_itself() -> None:
    source = ProgramSource("x86_64", "http://example.org/", "0" * 64)
    lines = user_data("{}", [source], 600, "aws:us-east-1", proxy="http://proxy.example:3128").splitlines()
    exports = "\n".join(line for line in lines if line.startswith("export "))
    shown = subprocess.run(["sh", "-c", f"{exports}\nexec env"], env={}, capture_output=True, text=True, check=True)
    variables = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    assert variables["http_proxy"] == "http://proxy.example:3128"
    for host in ("169.254.169.254", "metadata.google.internal"):
        assert host in variables["no_proxy"].split(",")
    assert variables["no_proxy"] == variables["NO_PROXY"]


def test_each_region_can_have_a_url_of_its_own() -> None:
    source = ProgramSource("x86_64", "https://programs-{region}.s3.{region}.amazonaws.com/gateway", "0" * 64)
    script = user_data("{}", [source], 600, "aws:us-east-1")
    assert f"x86_64 {'0' * 64} https://programs-us-east-1.s3.us-east-1.amazonaws.com/gateway" in script
    assert "{region}" not in script


def test_user_data_that_is_too_long_is_refused() -> None:
    source = ProgramSource("x86_64", "http://example.org/" + "a" * 20_000, "0" * 64)
    with pytest.raises(GatewayError, match=r"the user data of a machine has .* bytes, at most 16384 are possible"):
        user_data("{}", [source], 600, "aws:us-east-1")


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
