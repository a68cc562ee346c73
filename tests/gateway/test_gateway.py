"""The client against the real gateway program."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.errors import GatewayError, GatewayLost, UsageError
from tradewind.gateway import binary, client
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import FleetIdentity, GatewayClient
from tradewind.gateway.identities import make_identities
from tradewind.gateway.process import GatewayProcess
from tradewind.gateway.task import try_task

BINARY = find_gateway()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(BINARY, "local", ["--control", f"unix:{tmp_path}/s"], str(tmp_path / "log"))
    process.wait_ready()
    yield process
    process.stop()


def test_a_gateway_that_is_silent_is_lost_and_its_reader_does_not_hang(
    local: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "EVENT_SILENCE_S", 1.0)
    os.kill(local.pid, signal.SIGSTOP)
    try:
        with pytest.raises(GatewayLost, match="it sent nothing for 1 s"):
            list(GatewayClient(local.control).events())
    finally:
        os.kill(local.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "identities"
    make_identities(BINARY, folder, ["lead", "node", "stranger"])
    return folder


@pytest.fixture
def networked(tmp_path: Path, identities: Path) -> Iterator[GatewayProcess]:
    arguments = ["--control", "127.0.0.1:0", "--data", "127.0.0.1:0", "--identity", str(identities / "node")]
    process = GatewayProcess(BINARY, "node", arguments, str(tmp_path / "log"))
    process.wait_ready()
    yield process
    process.stop()


def test_over_a_unix_socket(local: GatewayProcess) -> None:
    client = GatewayClient(local.control)
    assert client.version()["contract"] == 1
    assert "# TYPE" in client.metrics()


def test_a_refused_program_says_why(local: GatewayProcess) -> None:
    with pytest.raises(GatewayError, match="refused PUT /v1/program") as caught:
        GatewayClient(local.control).put_program({"contract": 1, "job_id": "x", "node": "local", "routes": [{}]})
    assert not isinstance(caught.value, GatewayLost)


def test_over_https_with_the_fleets_identity(networked: GatewayProcess, identities: Path) -> None:
    client = GatewayClient(networked.control, FleetIdentity(identities, "lead", "node"))
    assert client.version()["data_address"] == networked.data_address


def test_another_name_than_expected_is_no_peer(networked: GatewayProcess, identities: Path) -> None:
    with pytest.raises(GatewayLost, match="certificate"):
        GatewayClient(networked.control, FleetIdentity(identities, "lead", "other")).version()


def test_another_fleet_is_no_peer(networked: GatewayProcess, tmp_path: Path) -> None:
    make_identities(BINARY, tmp_path / "fake", ["lead"])
    with pytest.raises(GatewayLost):
        GatewayClient(networked.control, FleetIdentity(tmp_path / "fake", "lead", "node")).version()


def test_without_an_identity_https_is_not_tried() -> None:
    with pytest.raises(GatewayError, match="identity"):
        GatewayClient("127.0.0.1:1").version()


def test_keys_are_for_us_alone(identities: Path) -> None:
    assert stat.S_IMODE((identities / "node" / "key.pem").stat().st_mode) == 0o600


def test_a_dead_gateway_is_lost(local: GatewayProcess) -> None:
    local.kill()
    assert local.exit_code == -signal.SIGKILL
    with pytest.raises(GatewayLost):
        GatewayClient(local.control).version()


def test_a_gateway_that_cannot_start_says_why(tmp_path: Path) -> None:
    process = GatewayProcess(BINARY, "bad", ["--control", "unix:/no/such/folder/s"], str(tmp_path / "log"))
    with pytest.raises(GatewayError, match=r"did not start: .*cannot listen"):
        process.wait_ready()


def test_a_gateway_of_another_contract_is_told_by_both_versions(tmp_path: Path) -> None:
    aged = ["sh", "-c", """"$@" | sed -u 's/"contract":1/"contract":7/'""", "sh"]
    arguments = ["--control", f"unix:{tmp_path}/s"]
    process = GatewayProcess(BINARY, "aged", arguments, str(tmp_path / "log"), enter=aged)
    with pytest.raises(
        GatewayError, match=r"^tradewind \S+ speaks contract 1, tradewind-gateway \S+ contract 7$"
    ) as caught:
        process.wait_ready()
    assert "one version" in (caught.value.hint or "")
    assert process.exit_code is not None


def test_a_task_of_another_contract_is_told_by_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "CONTRACT_VERSION", 7)
    task = {"task": "one that this gateway does not know"}
    with pytest.raises(
        GatewayError, match=r"^tradewind \S+ speaks contract 7, tradewind-gateway \S+ contract 1$"
    ) as caught:
        try_task(BINARY, task)
    assert "one version" in (caught.value.hint or "")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="not understood"):
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


def test_the_program_is_found_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRADEWIND_GATEWAY", BINARY)
    assert find_gateway() == BINARY
    monkeypatch.setenv("TRADEWIND_GATEWAY", str(tmp_path / "none"))
    with pytest.raises(GatewayError, match="no such program"):
        find_gateway()


def test_a_missing_program_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRADEWIND_GATEWAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sys.argv", [str(tmp_path / "tradewind")])
    with pytest.raises(GatewayError, match="missing") as caught:
        find_gateway()
    assert caught.value.hint is not None
    assert "make setup" in caught.value.hint
