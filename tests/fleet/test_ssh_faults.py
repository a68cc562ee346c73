"""The SSH provider's fault table: what goes wrong on the way to a host or on it, and what a user learns of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.sshd import LocalServer, local_ssh_server, sshd_unavailable
from tests.fleet.worlds import leftovers, living, plan_between, wait_until
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import FLEET_TAG, CallRefused, LaunchOrder, LaunchResult, Lease, Provider, Quota, Refusal
from tradewind.fleet.providers import make_provider, ssh
from tradewind.fleet.ssh import connection
from tradewind.fleet.ssh.bounded import run_bounded
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient

FLEET = "faults"
REGION = "site:here"


class Stage:
    """A host with an SSH server, which is this host, and the provider for it."""

    def __init__(self, server: LocalServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.on_host = folder / "on the host"

    def provider(self, binary: str | None = None, **changes: object) -> Provider:
        host = {"name": "here", "region": REGION, "address": "127.0.0.1", "folder": str(self.on_host), **changes}
        document = {"kind": "ssh", "hosts": [host], "ssh_config": str(self.server.config)}
        return make_provider(document, binary or find_gateway(), FleetJournal(self.folder / "state"))

    def refusal(self, provider: Provider) -> Refusal:
        result = launch(provider)
        assert result.machine is None and result.refusal is not None
        assert "\n" not in result.refusal.reason
        return result.refusal


def launch(provider: Provider, lease_s: int = 600) -> LaunchResult:
    lease = Lease(lease_s, here().label)
    (result,) = provider.launch([LaunchOrder(FLEET, "one", REGION, "key", 1, lease, peers=("lead",))])
    return result


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-ssh-") as short, local_ssh_server(Path(short, "ssh")) as server:
        made = Stage(server, tmp_path)
        yield made
        server.stop()
        server.start()
        provider = made.provider()
        with suppress(CallRefused):  # Some faults last; then nothing was launched.
            provider.terminate([found.id for found in provider.leftovers()])


def another_key(stage: Stage) -> None:
    key = stage.server.folder / "user"
    key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, input=b"y\n")
    shutil.copy(stage.server.folder / "host.pub", stage.server.folder / "user.pub")


def unknown_host_key(stage: Stage) -> None:
    (stage.server.folder / "known_hosts").write_text("")


def no_server(stage: Stage) -> None:
    stage.server.stop()


def no_such_name(stage: Stage) -> None:
    stage.server.write_config("here", "no-such-host.invalid")


def folder_in_a_file(stage: Stage) -> None:
    stage.on_host.write_text("a file")


def folder_of_another_user(stage: Stage) -> None:
    """Whoever owns the folder could replace the program that gets the secrets of a fleet."""
    stage.on_host.mkdir()
    os.chown(stage.on_host, 65534, 65534)


def no_ssh(stage: Stage) -> None:
    os.environ["PATH"] = str(stage.folder)


FAULTS: dict[Callable[[Stage], None], tuple[str, str, str | None]] = {
    another_key: ("permission", "Permission denied", "ssh -o BatchMode=yes here true"),
    unknown_host_key: ("permission", "Host key verification failed", "`ssh here`"),
    no_server: ("capacity", "Connection refused", None),
    no_such_name: ("capacity", "Could not resolve hostname", None),
    folder_in_a_file: ("permission", "cannot make", "`folder` of the host"),
    folder_of_another_user: ("permission", "it belongs to another user", "`folder` of the host"),
    no_ssh: ("bad request", "there is no `ssh` on this machine", None),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_launch_that_fails_says_why(
    stage: Stage, fault: Callable[[Stage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # Restored at the end.
    fault(stage)
    refusal = stage.refusal(stage.provider())
    kind, words, action = FAULTS[fault]
    assert refusal.kind == kind and words in refusal.reason, refusal
    assert (action is None) if refusal.action is None else (action is not None and action in refusal.action)
    if stage.on_host.is_file():
        stage.on_host.unlink()


def test_a_host_that_cannot_be_reached_has_no_room_that_is_known(stage: Stage) -> None:
    assert stage.provider().quota(REGION) == Quota(1, 0)
    stage.server.stop()
    with pytest.raises(CallRefused, match="Connection refused"):
        stage.provider().quota(REGION)


def test_a_full_disk_is_a_lack_of_capacity(stage: Stage) -> None:
    stage.on_host.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", stage.on_host], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.strip()}")
    try:
        refusal = stage.refusal(stage.provider())
        assert refusal.kind == "capacity" and "No space left on device" in refusal.reason, refusal
        assert list(stage.on_host.glob("programs/.*")) == [], "half a program is left"
    finally:
        subprocess.run(["umount", "-l", stage.on_host], check=True)


def test_a_program_that_cannot_run_there_is_a_bad_request(stage: Stage, tmp_path: Path) -> None:
    """As a program for another processor. The machine's folder does not stay."""
    wrong = tmp_path / "program"
    wrong.write_bytes(b"\x7fELF nonsense")
    refusal = stage.refusal(stage.provider(str(wrong)))
    assert refusal.kind == "bad request" and "the gateway did not start" in refusal.reason, refusal
    assert list(stage.on_host.glob("machines/*")) == []


def test_a_broken_connection_is_opened_again_with_the_same_ports(stage: Stage) -> None:
    provider = stage.provider()
    machine = launch(provider).machine
    assert machine is not None and machine.control is not None
    assert GatewayClient(machine.control).version()
    stage.server.stop()
    assert [found.id for found in provider.machines({FLEET_TAG: FLEET})] == [machine.id], "unreachable is not dead"
    with pytest.raises(CallRefused, match="Connection refused"):
        stage.provider().machines({FLEET_TAG: FLEET})
    stage.server.start()
    assert provider.machines({FLEET_TAG: FLEET}) == (machine,)
    assert GatewayClient(machine.control).version()
    provider.terminate([machine.id])
    assert list(stage.on_host.glob("machines/*")) == []


def test_an_ended_fleet_keeps_no_connection(stage: Stage) -> None:
    """Also while something refers to it: a server may run for months, and its memory is cleaned up when it works."""
    journal, plan = FleetJournal(stage.folder / "state"), plan_between(REGION, REGION)
    fleet = Fleet(stage.provider(gateways=2), journal, plan, find_gateway(), purpose="a test")
    clients = f"-F {stage.server.config} "
    assert leftovers(clients)
    fleet.close()
    assert leftovers(clients) == []
    look = fleet.look_for_remains()
    assert look is not None
    remains = look.result()
    assert remains is not None and remains.is_nothing and remains.looked_for
    assert leftovers(clients) == []


def test_a_gateway_outlives_its_connection_until_its_lease_expires(stage: Stage) -> None:
    machine = launch(stage.provider(), lease_s=6).machine
    assert machine is not None
    stage.server.stop()
    (pid,) = [int(path.read_text()) for path in stage.on_host.glob("machines/*/pid")]
    os.kill(pid, 0)
    stage.server.start()
    provider = stage.provider()
    assert [found.id for found in living(provider, FLEET)] == [machine.id]
    wait_until(lambda: living(provider, FLEET) == [])


def test_a_frozen_gateway_is_killed_after_its_lease(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot end itself, and nobody may reach the host any more."""
    script = tmp_path / "machine.sh"
    text = connection._MACHINE_SCRIPT.read_text()
    script.write_text(text.replace("LATE_S=60", "LATE_S=1").replace("LOOK_S=5", "LOOK_S=1"))
    monkeypatch.setattr(connection, "_MACHINE_SCRIPT", script)
    assert launch(stage.provider(), lease_s=3).machine is not None
    (pid,) = [int(path.read_text()) for path in stage.on_host.glob("machines/*/pid")]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: living(stage.provider(), FLEET) == [])
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_nothing_watches_a_gateway_that_has_ended_without_its_supervisor(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a host without `setsid`, where only the supervisor can be killed and not its process group."""
    script = tmp_path / "machine.sh"
    script.write_text(connection._MACHINE_SCRIPT.read_text().replace("LOOK_S=5", "LOOK_S=0.2"))
    monkeypatch.setattr(connection, "_MACHINE_SCRIPT", script)
    assert launch(stage.provider()).machine is not None
    (folder,) = stage.on_host.glob("machines/*")
    leader = int((folder / "supervisor").read_text())
    for name in ("supervisor", "pid"):
        os.kill(int((folder / name).read_text()), signal.SIGKILL)
    try:
        wait_until(lambda: not _has_members(leader))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_sockets_of_a_killed_process_are_removed(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(stage.server.folder))
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, used = (stage.server.folder / f"tradewind-ssh-{pid}-x" for pid in (gone.pid, os.getpid()))
    left.mkdir()
    used.mkdir()
    assert stage.provider().machines({}) == ()
    assert not left.exists() and used.exists()


def test_a_gateway_that_does_not_stop_is_killed(stage: Stage) -> None:
    provider = stage.provider()
    machine = launch(provider).machine
    assert machine is not None
    (pid,) = [int(path.read_text()) for path in stage.on_host.glob("machines/*/pid")]
    os.kill(pid, signal.SIGSTOP)
    (ended,) = provider.terminate([machine.id], grace_s=0.5)
    assert ended.refusal is None
    assert list(stage.on_host.glob("machines/*")) == []
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("unpacker", "most"), [("gunzip", 0.6), ("no-such-gunzip", 1.0)])
def test_a_program_is_copied_compressed_if_the_host_can_unpack_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, unpacker: str, most: float
) -> None:
    """It is the same program either way."""
    sent: list[int] = []

    def counted(words: Sequence[str], given: bytes, *rest: Any) -> tuple[int, bytes, bytes]:
        code, out, errors = run_bounded(words, given, *rest)
        sent.append(len(given) if code == 0 else 0)
        return code, out, errors

    monkeypatch.setattr(connection, "run_bounded", counted)
    monkeypatch.setattr(connection, "UNPACKER", unpacker)
    assert launch(stage.provider()).machine is not None
    program = Path(find_gateway()).read_bytes()
    (copied,) = (stage.on_host / "programs").iterdir()
    assert copied.read_bytes() == program
    assert most - 0.5 < max(sent) / len(program) <= most


def test_a_host_with_another_processor_gets_the_static_program_for_it(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine claims to have another processor than the host, and its own program does not run there."""
    monkeypatch.setattr(ssh, "processor_here", lambda: "riscv64")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF for another processor")
    static = tmp_path / "programs" / f"tradewind-gateway-{os.uname().machine}"
    static.parent.mkdir()
    shutil.copy(find_gateway(), static)
    monkeypatch.setenv("TRADEWIND_PROGRAMS", str(static.parent))
    provider = stage.provider(str(foreign))
    assert launch(provider).machine is not None
    (copied,) = (stage.on_host / "programs").iterdir()
    assert copied.name == sha256(static.read_bytes()).hexdigest()


def test_a_host_whose_processor_has_no_program_gets_none(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "processor_here", lambda: "riscv64")
    monkeypatch.delenv("TRADEWIND_PROGRAMS", raising=False)
    refusal = stage.refusal(stage.provider())
    assert refusal.kind == "bad request"
    assert f"no gateway program for Linux {os.uname().machine}; TRADEWIND_PROGRAMS" in refusal.reason
    assert not list((stage.on_host / "programs").iterdir())
