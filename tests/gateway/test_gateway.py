"""The client with the real gateway program."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.errors import GatewayError, GatewayLost, UsageError
from tradewind.gateway import binary, client
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.owner import FleetOwner, JoinToken
from tradewind.gateway.process import STOP_S, GatewayProcess
from tradewind.gateway.task import try_task
from tradewind.model.program import CONTRACT_VERSION

BINARY = find_gateway()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(BINARY, "local", ["--control", f"unix:{tmp_path}/s"], str(tmp_path / "log"))
    process.wait_ready()
    yield process
    process.stop()


def test_a_silent_gateway_is_lost_and_its_reader_does_not_hang(
    local: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "EVENT_SILENCE_S", 1.0)
    os.kill(local.pid, signal.SIGSTOP)
    try:
        with pytest.raises(GatewayLost, match="it sent nothing for 1 s"):
            list(GatewayClient(local.control).events())
    finally:
        os.kill(local.pid, signal.SIGCONT)


def test_a_gateway_that_stands_still_does_not_count_as_alive(tmp_path: Path) -> None:
    """The supervisor of an image without a shell runs the program that the gateway has linked."""
    signs = tmp_path / "alive"
    signs.mkdir()

    def is_alive() -> bool:
        words = [str(signs / "gateway"), "alive", str(signs)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "error: the gateway has stood still for" in done.stderr, done.stderr
        return done.returncode == 0

    arguments = ["--control", f"unix:{tmp_path}/s", "--alive-dir", str(signs)]
    process = GatewayProcess(BINARY, "local", arguments, str(tmp_path / "log"))
    try:
        process.wait_ready()
        assert is_alive()
        os.kill(process.pid, signal.SIGSTOP)
        # Until all its threads stand still, it may write once more.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        last_s = float((signs / "uptime").read_text())
        (signs / "uptime").write_text(f"{max(0.0, last_s - 60):020.2f}\n")
        assert not is_alive()
        os.kill(process.pid, signal.SIGCONT)
        deadline_s = time.monotonic() + 30
        while not is_alive():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
    finally:
        process.stop()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[FleetOwner]:
    folder = tmp_path / "fleet"
    folder.mkdir(mode=0o700)
    owner = FleetOwner(
        BINARY, "fleet-1", folder, str(tmp_path / "owner.log"), listen="127.0.0.1:0", enter=(), environment=os.environ
    )
    yield owner
    owner.close(STOP_S)


def joined(owner: FleetOwner, tmp_path: Path, name: str, *, calls_home: bool) -> GatewayProcess:
    """Start a gateway that joins the owner's fleet, in either direction."""
    token = JoinToken.new()
    join = owner.join(name, token)
    if calls_home:
        owner.add(name, token, calls_home=True)
    line = join.calling("127.0.0.1:0") if calls_home else join.listening("127.0.0.1:0", "127.0.0.1:0")
    process = GatewayProcess(BINARY, name, ["--join", "-"], str(tmp_path / f"{name}.log"), input_line=line)
    process.wait_ready()
    if not calls_home:
        owner.add(name, token, dial=process.control)
    return process


@pytest.mark.parametrize("calls_home", [False, True], ids=["dialled", "calls home"])
def test_a_gateway_joins_a_fleet_and_is_reached_through_its_owner(
    owner: FleetOwner, tmp_path: Path, calls_home: bool
) -> None:
    process = joined(owner, tmp_path, "relay", calls_home=calls_home)
    try:
        client = GatewayClient(f"unix:{tmp_path}/fleet/control/relay")
        assert client.version()["data_address"] == process.data_address
        assert (process.control == "") == calls_home
        state = owner.states()["relay"]
        assert (state["enrolled"], state["reachable"], state["failure"]) == (True, True, None)
        assert 23 * 3600 < state["expires_unix_s"] - time.time() <= 24 * 3600
        assert not list((tmp_path / "fleet").rglob("*.pem"))
        owner.remove("relay")
        with pytest.raises(GatewayLost):
            client.version()
        assert owner.states() == {}
    finally:
        process.stop()


def test_a_missing_gateway_is_lost_and_the_owner_knows_why(owner: FleetOwner, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    owner.add("relay", JoinToken.new(), dial=address)
    with pytest.raises(GatewayLost):
        GatewayClient(f"unix:{tmp_path}/fleet/control/relay").version(1.0)
    assert "refused" in (owner.failure("relay") or "")


def test_tokens_are_not_printed(owner: FleetOwner) -> None:
    token = JoinToken.new()
    assert token.hex not in f"{token} {owner.join('relay', token)}"
    assert token.hex != JoinToken.new().hex


def test_an_owner_that_cannot_start_reports_why(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match=r"did not start: .*cannot listen at 203\.0\.113\.1:0"):
        FleetOwner(BINARY, "f", tmp_path, f"{tmp_path}/log", listen="203.0.113.1:0", enter=(), environment=os.environ)


def test_over_a_unix_socket(local: GatewayProcess) -> None:
    client = GatewayClient(local.control)
    assert client.version()["contract"] == CONTRACT_VERSION
    assert "# TYPE" in client.metrics()


def test_a_refused_program_reports_why(local: GatewayProcess) -> None:
    with pytest.raises(GatewayError, match="refused PUT /v1/program") as caught:
        GatewayClient(local.control).put_program(
            {"contract": CONTRACT_VERSION, "job_id": "x", "node": "local", "routes": [{}]}
        )
    assert not isinstance(caught.value, GatewayLost)


def test_a_wrong_value_of_a_program_is_reported_in_its_own_words(local: GatewayProcess) -> None:
    with pytest.raises(GatewayError, match=r"^0 routes$"):
        GatewayClient(local.control).put_program(
            {"contract": CONTRACT_VERSION, "job_id": "x", "node": "local", "routes": []}
        )


def test_a_tcp_address_is_refused_without_an_owner() -> None:
    with pytest.raises(GatewayError, match="not the path of a Unix socket"):
        GatewayClient("127.0.0.1:1").version()


def test_a_dead_gateway_is_lost(local: GatewayProcess) -> None:
    local.kill()
    assert local.exit_code == -signal.SIGKILL
    with pytest.raises(GatewayLost):
        GatewayClient(local.control).version()


def test_a_gateway_that_cannot_start_reports_why(tmp_path: Path) -> None:
    process = GatewayProcess(BINARY, "bad", ["--control", "unix:/no/such/folder/s"], str(tmp_path / "log"))
    with pytest.raises(GatewayError, match=r"did not start: .*cannot listen"):
        process.wait_ready()


def test_the_error_for_a_gateway_of_another_contract_has_both_versions(tmp_path: Path) -> None:
    aged = ["sh", "-c", f""""$@" | sed -u 's/"contract":{CONTRACT_VERSION}/"contract":7/'""", "sh"]
    arguments = ["--control", f"unix:{tmp_path}/s"]
    process = GatewayProcess(BINARY, "aged", arguments, str(tmp_path / "log"), enter=aged)
    with pytest.raises(
        GatewayError, match=rf"^tradewind \S+ uses contract {CONTRACT_VERSION}, tradewind-gateway \S+ uses contract 7$"
    ) as caught:
        process.wait_ready()
    assert "same version" in (caught.value.hint or "")
    assert process.exit_code is not None


def test_the_error_for_a_task_of_another_contract_has_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "CONTRACT_VERSION", 7)
    task = {"task": "one that this gateway does not know"}
    with pytest.raises(
        GatewayError, match=rf"^tradewind \S+ uses contract 7, tradewind-gateway \S+ uses contract {CONTRACT_VERSION}$"
    ) as caught:
        try_task(BINARY, task)
    assert "same version" in (caught.value.hint or "")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot parse the task"):
        try_task(BINARY, task)


def test_a_gateway_dies_with_its_client(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from tradewind.gateway.process import GatewayProcess\n"
        f"p = GatewayProcess({BINARY!r}, 'x', ['--control', 'unix:{tmp_path}/s'], '{tmp_path}/log')\n"
        "p.wait_ready()\n"
        "print(p.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    gateway = os.pidfd_open(int(done.stdout)) if alive(int(done.stdout)) else None
    if gateway is not None:
        import select

        assert select.select([gateway], [], [], 30)[0]
        os.close(gateway)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_program_is_found_through_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_GATEWAY", BINARY)
    assert find_gateway() == BINARY
    monkeypatch.setenv("TRADEWIND_GATEWAY", str(tmp_path / "none"))
    with pytest.raises(GatewayError, match="no such program"):
        find_gateway()


def test_a_missing_program_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRADEWIND_GATEWAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sys.argv", [str(tmp_path / "tradewind")])
    with pytest.raises(GatewayError, match="missing") as caught:
        find_gateway()
    assert caught.value.hint is not None
    assert "make setup" in caught.value.hint
