"""Ownership of fleets, decided by lock and owner record. A forged or foreign record causes no process to be ended."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.trees import MIB, write_large
from tests.fleet.worlds import plan_between, wait_until
from tradewind.engine.ledger import LedgerBook
from tradewind.errors import ConfigError, FleetNotFound, GatewayError, StateError
from tradewind.fleet import owner as ownership_module
from tradewind.fleet.ending import EndedFleet, end_fleet
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.fleet_records import Attempt
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import HEARTBEAT_STALE_S, here, owner_state, ownership
from tradewind.fleet.process_table import MACHINE_VARIABLE
from tradewind.fleet.processes import Placement, machine_mark
from tradewind.fleet.provider import FLEET_TAG, LaunchOrder, Lease
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.fleet.running import RunningProcess, find_process
from tradewind.fleet.settings import LEASE_S, FleetSettings
from tradewind.fleet.warm import Keeping
from tradewind.gateway.binary import find_gateway
from tradewind.model.files import STATE_ENTRIES, private_folder, state_folder
from tradewind.model.ledger import Ledger, MachineUse, RunCount
from tradewind.model.locks import is_locked, try_lock

OWN = secrets.token_hex(4)
"""Suffix of the ids of fleets with machines, because other tests run on this host."""
STRANGER = 54321
"""The id of another user."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def journal(tmp_path: Path) -> FleetJournal:
    return FleetJournal(tmp_path / "state")


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its group and does not belong to any fleet."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def write_record(journal: FleetJournal, fleet_id: str, changes: dict[str, Any] | None = None) -> Path:
    """Write a fleet's record as a dead client leaves it, with `changes` to its owner."""
    folder = journal.open(fleet_id, "a test", {"kind": "local"}, {"local": "site:a"})
    journal.give_back(fleet_id)
    if changes is not None:
        ((owner,),) = journal.database.rows("SELECT owner FROM fleets WHERE id = ?", (fleet_id,))
        document = json.dumps({**json.loads(owner), **changes})
        journal.database.write("UPDATE fleets SET owner = ? WHERE id = ?", (document, fleet_id))
    return folder


def mark_of_machine(folder: Path) -> dict[str, str]:
    """Return the environment of a process that is a machine of a folder's fleet."""
    order = LaunchOrder(folder.name, "local", "site:a", "a-key", 1, Lease(600, "an-owner"))
    mark = machine_mark("local", order, Placement(), folder, folder)
    return {**os.environ, MACHINE_VARIABLE: json.dumps(mark)}


@contextmanager
def machine_of(folder: Path, user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process with the mark of a fleet's machine, optionally as another user."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, env=mark_of_machine(folder), user=user)
    try:
        # The environment is visible only after exec.
        wait_until(lambda: MACHINE_VARIABLE.encode() in Path(f"/proc/{process.pid}/environ").read_bytes())
        yield process
    finally:
        process.kill()
        process.wait()


def command_of(journal: FleetJournal, tmp_path: Path) -> Command:
    return Command(tmp_path / "home", {"TRADEWIND_STATE_DIR": str(journal.folder.parent)})


def test_a_fleet_is_in_use_while_its_lock_is_held_and_abandoned_when_it_is_free(journal: FleetJournal) -> None:
    folder = write_record(journal, "one")
    (record,) = journal.records()
    assert record.ownership == "abandoned"
    descriptor = os.open(folder / "owner.lock", os.O_RDWR)
    assert try_lock(descriptor)
    (record,) = FleetJournal(journal.folder.parent).records()
    assert record.ownership == "in use"
    os.close(descriptor)


PRINT_STATES = """
import os, sys
from tradewind.fleet.owner import here, owner_state
here()  # Another user may not read the program's modules.
os.setgid(54321)
os.setuid(54321)
print(*map(owner_state, sys.argv[1:]))
"""


@root_only
def test_the_machines_of_a_user_whose_processes_are_hidden_are_not_swept() -> None:
    """Many hosts show each user only their own processes: /proc is mounted with `hidepid`."""
    hidden = 'mount --make-rprivate / && mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", hidden, "sh"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("/proc cannot be mounted here")
    dead = subprocess.Popen(["true"])
    dead.wait()
    labels = [here().label, here().label.replace(f"-{os.getpid()}-", f"-{dead.pid}-")]
    done = subprocess.run([*unshare, sys.executable, "-c", PRINT_STATES, *labels], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("in use gone\n", "")


@pytest.mark.parametrize(
    ("host", "boot", "silent_s", "locked", "expected"),
    [
        ("same", "same", 0, True, "in use"),
        ("same", "same", 0, False, "abandoned"),
        ("other", "same", 0, False, "abandoned"),  # Containers of one kernel share locks.
        ("same", "other", 0, False, "elsewhere"),  # Hosts from the same image have the same id.
        ("same", "other", HEARTBEAT_STALE_S + 1, False, "abandoned"),  # The host was rebooted.
        ("other", "other", 0, False, "elsewhere"),
        ("other", "other", 10 * HEARTBEAT_STALE_S, False, "elsewhere"),
        ("other", "other", 0, True, "in use"),
        ("", "other", 10 * HEARTBEAT_STALE_S, False, "elsewhere"),
    ],
)
def test_ownership_of_a_fleet(
    monkeypatch: pytest.MonkeyPatch, host: str, boot: str, silent_s: float, locked: bool, expected: str
) -> None:
    monkeypatch.setattr(ownership_module, "_host", lambda: "same")
    monkeypatch.setattr(ownership_module, "_boot", lambda: "same")
    found = ownership_module.Owner(host, "name", boot, 1, find_process(os.getpid()))
    assert ownership(found, locked=locked, heartbeat_unix_s=time.time() - silent_s) == expected


def test_a_fleet_of_another_host_is_neither_removed_nor_ended(journal: FleetJournal, tmp_path: Path) -> None:
    """Two hosts may have the same process ids and, if made from one image, the same host id."""
    folder = write_record(
        journal, f"theirs-{OWN}", {"host": "other", "boot": "other", "host_name": "elsewhere.example"}
    )
    command = command_of(journal, tmp_path)
    with machine_of(folder) as machine:
        assert command.run("fleet", "down").expect(0).stdout == ""
        assert "on host elsewhere.example" in command.run("fleet", "list").expect(0).stdout
        refused = command.run("fleet", "down", folder.name).expect(2)
        assert "is on host elsewhere.example and can only be ended there" in refused.stderr
        assert journal.load(folder.name).ownership == "elsewhere"
        assert folder.exists() and machine.poll() is None


@pytest.mark.parametrize("column", ["owner", "provider", "wanted"])
@pytest.mark.parametrize("content", ["", "[1]", "7", "[" * 100_000, "null"])
def test_an_unreadable_record_is_reported_by_name(
    journal: FleetJournal, tmp_path: Path, column: str, content: str
) -> None:
    write_record(journal, "bad")
    journal.database.write(f"UPDATE fleets SET {column} = ?", (content,))
    write_record(journal, "good")
    assert [record.id for record in journal.records()] == ["good"]
    assert [fleet.id for fleet in journal.unreadable()] == ["bad"]
    command = command_of(journal, tmp_path)
    listed = command.run("fleet", "list").expect(1)
    assert "good" in listed.stdout and "error: fleet bad cannot be read: " in listed.stderr
    ended = command.run("fleet", "down").expect(1)
    assert ended.stdout == "good: 0 machines ended\n" and "fleet bad cannot be read" in ended.stderr
    assert (journal.folder / "bad").exists(), "its machines may live"


def test_fleet_down_ends_the_charges_of_an_abandoned_job(journal: FleetJournal, tmp_path: Path) -> None:
    folder = journal.open("left", "job j1", {"kind": "local"}, {"relay": "site:a"})
    journal.give_back("left")
    assert folder.exists()
    job = journal.folder.parent / "jobs" / "j1"
    job.mkdir(parents=True)
    began_s = time.time() - 100
    uses = (
        MachineUse(1, "left", "relay", "site:a", began_s, None, 0.01),
        MachineUse(1, "other", "b", "site:a", began_s),
    )
    book = LedgerBook(journal.database, "j1", str(job))
    book.write(Ledger(machines=uses, runs=(RunCount(1),), heartbeat_s=time.time(), alive_s_max=905.0))
    command_of(journal, tmp_path).run("fleet", "down").expect(0)
    ledger = book.read()
    assert ledger is not None
    left, other = ledger.machines
    assert left.ended_s == pytest.approx(time.time(), abs=10)
    assert other.ended_s is None
    assert ledger.total_usd(time.time() + 900) == pytest.approx(1.0, abs=0.1)


def test_fleet_list_shows_when_the_machines_of_a_dead_client_end(journal: FleetJournal, tmp_path: Path) -> None:
    fleet_id = f"leased-{OWN}"
    write_record(journal, fleet_id)
    command = command_of(journal, tmp_path)
    assert "leases" not in command.run("fleet", "list").stdout
    for name, lease_s in (("local", 7000.0), ("ended", 99_000.0)):
        journal.launched(fleet_id, name, "site:a")
        journal.ready(fleet_id, name, lease_s)
    journal.ended(fleet_id, ["ended"])
    assert "0 of 1 machine alive (leases expire in 1 h 5" in command.run("fleet", "list").stdout
    shown = json.loads(command.run("fleet", "list", "--json").stdout)
    assert shown["lease_end_unix_s"] == pytest.approx(time.time() + 7000, abs=60)
    journal.leased(fleet_id, "local", -1.0)
    assert "(leases expired)" in command.run("fleet", "list").stdout


def test_fleet_explain_shows_each_attempt_even_after_the_end(journal: FleetJournal, tmp_path: Path) -> None:
    write_record(journal, "one")
    refused = Attempt(0.0, "relay", "aws:us-east-1", "permission", "not authorised", "m5.large", "a", "ec2:CreateFleet")
    for attempt in (refused, Attempt(1.0, "sink", "site:b", "launched")):
        journal.record_attempt("one", attempt)
    journal.close("one")
    command = command_of(journal, tmp_path)
    first, second = command.run("fleet", "explain", "one").expect(0).stdout.splitlines()
    assert first.endswith("relay  aws:us-east-1 a m5.large  permission: not authorised (needs ec2:CreateFleet)")
    assert second.endswith("sink  site:b  launched")
    document = json.loads(command.run("fleet", "explain", "one", "--json").expect(0).stdout.splitlines()[1])
    assert document == {"unix_s": 1.0, "name": "sink", "region": "site:b", "outcome": "launched", "reason": ""}
    assert "no fleet two" in command.run("fleet", "explain", "two").expect(3).stderr
    assert "takes one ID" in command.run("fleet", "explain").expect(2).stderr


def test_a_folder_without_a_record_is_reported_unless_it_is_being_made(journal: FleetJournal) -> None:
    folder = write_record(journal, "one")
    journal.database.write("DELETE FROM fleets")
    assert journal.unreadable() == []
    os.utime(folder, (0, 0))
    assert [(fleet.id, fleet.because) for fleet in journal.unreadable()] == [("one", "it has no record")]


def test_fleet_down_removes_what_a_killed_client_left_without_a_record(journal: FleetJournal, tmp_path: Path) -> None:
    empty, owned = (write_record(journal, name) for name in ("empty", "owned"))
    holder = os.open(owned / "owner.lock", os.O_RDWR | os.O_CREAT)
    assert try_lock(holder)
    journal.database.write("DELETE FROM fleets")
    for folder in (empty, owned):
        os.utime(folder, (0, 0))
    command = command_of(journal, tmp_path)
    listed = command.run("fleet", "list").expect(1).stderr
    assert "fleet empty cannot be read" in listed and "`tradewind fleet down` removes it" in listed
    command.run("fleet", "down").expect(0)
    assert not empty.exists() and owned.exists()
    os.close(holder)


def test_a_process_without_our_mark_is_never_ended(journal: FleetJournal, bystander: subprocess.Popen[bytes]) -> None:
    """It is not ended even if a record names its id, because process ids are reused."""
    provider, process = make_provider(LOCAL, find_gateway(), journal), find_process(bystander.pid)
    for planted in (f"{process.pid}@{process.started}", f"{process.pid}@{(process.started or 0) + 1}"):
        assert [answer.refusal for answer in provider.terminate([planted], grace_s=1.0)] == [None]
    assert bystander.poll() is None
    RunningProcess(bystander.pid, None).signal(signal.SIGKILL)
    assert bystander.poll() is None, "an id without a start time identifies no process"


@root_only
def test_a_machine_of_another_user_is_neither_listed_nor_ended(journal: FleetJournal, tmp_path: Path) -> None:
    folder = write_record(journal, f"planted-{OWN}")
    with machine_of(folder, user=STRANGER) as machine:
        provider = make_provider(LOCAL, find_gateway(), journal)
        assert provider.machines({FLEET_TAG: folder.name}) == ()
        process = find_process(machine.pid)
        provider.terminate([f"{process.pid}@{process.started}"])
        assert (
            command_of(journal, tmp_path).run("fleet", "down").expect(0).stdout == f"{folder.name}: 0 machines ended\n"
        )
        assert machine.poll() is None


@root_only
def test_records_and_folders_of_another_user_are_refused(journal: FleetJournal, tmp_path: Path) -> None:
    folder = write_record(journal, "planted")
    command = command_of(journal, tmp_path)
    os.chown(journal.database.path, STRANGER, STRANGER)
    assert "belongs to user 54321" in command.run("fleet", "down").expect(2).stderr
    os.chown(journal.database.path, 0, 0)
    os.chown(folder, STRANGER, STRANGER)
    assert "fleet planted cannot be read" in command.run("fleet", "down").expect(1).stderr
    os.chown(journal.folder, STRANGER, STRANGER)
    assert "belongs to user 54321" in command.run("fleet", "down").expect(2).stderr
    with pytest.raises(ConfigError, match="belongs to user"):
        journal.open("mine", "a test", {"kind": "local"}, {})


def modes(folder: Path) -> dict[str, str]:
    """Return the modes of the folders below a folder that others may enter."""
    found = [folder, *(entry for entry in folder.rglob("*") if entry.is_dir())]
    return {str(entry): oct(entry.stat().st_mode & 0o777) for entry in found if entry.stat().st_mode & 0o077}


@pytest.mark.parametrize("there_already", [False, True])
def test_all_folders_of_the_state_are_private_whatever_the_umask(tmp_path: Path, there_already: bool) -> None:
    command = Command(tmp_path / "home")
    if there_already:
        for name in ("jobs", "fleets", "catalog"):
            (command.state / name).mkdir(parents=True)
            (command.state / name).chmod(0o777)
        command.state.chmod(0o777)
    write_large(tmp_path / "source" / "large", MIB)
    (tmp_path / "links.csv").write_text("src,dst,gbps,rtt_ms\naws:us-east-1,aws:us-west-2,4,60\n")
    before = os.umask(0)
    try:
        command.run("cp", "-r", tmp_path / "source", tmp_path / "copy", "--keep-logs").expect(0)
        command.run("catalog", "import", tmp_path / "links.csv").expect(0)
    finally:
        os.umask(before)
    entries = {entry.name for entry in command.state.iterdir()}
    assert {name for name in entries if not name.startswith("state.sqlite-")} == {
        "jobs",
        "fleets",
        "catalog",
        "state.sqlite",
    }
    assert entries <= STATE_ENTRIES
    assert modes(command.state) == {}


def test_a_state_folder_with_other_things_keeps_its_mode_and_one_that_all_may_write_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "letters").mkdir()
    assert state_folder(home) == home
    assert home.stat().st_mode & 0o777 == 0o755
    for mode in (0o777, 0o1777):
        home.chmod(mode)
        with pytest.raises(ConfigError, match="other users may write"):
            state_folder(home)
    home.chmod(0o700)
    assert private_folder(home / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (home / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
def test_a_link_that_another_user_has_made_is_not_followed(tmp_path: Path) -> None:
    """It leads to a folder of this user, which would get jobs and another mode."""
    home, letters = tmp_path / "home", tmp_path / "letters"
    home.mkdir()
    letters.mkdir(mode=0o755)
    home.chmod(0o1777)
    (home / "jobs").symlink_to(letters)
    os.chown(home / "jobs", 65534, 65534, follow_symlinks=False)
    for make in (state_folder, private_folder, state_folder):
        with pytest.raises(ConfigError, match="another user has made jobs"):
            make(home)
    (home / "jobs").unlink()
    assert state_folder(home).stat().st_mode & 0o7777 == 0o700
    assert letters.stat().st_mode & 0o777 == 0o755


CLIENT = """
import json, sys, time
from tests.fleet.worlds import plan_between
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.settings import FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import LOCAL, make_provider
state, binary = sys.argv[1:]
journal = FleetJournal(state)
provider = make_provider(LOCAL, binary, journal)
fleet = Fleet(provider, journal, plan_between("site:a", "site:b"), binary, purpose="a test")
print(fleet.id, flush=True)
time.sleep(600)
"""


def namespace_reason() -> str | None:
    """Return why this host provides no PID namespaces; None if it does."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no PID namespace: {done.stderr.strip()}"


@pytest.fixture
def other_namespace(journal: FleetJournal) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a client with a fleet in its own PID namespace."""
    if reason := namespace_reason():
        pytest.skip(reason)
    clients = []

    def begin() -> subprocess.Popen[str]:
        words = [sys.executable, "-c", CLIENT, str(journal.folder.parent), find_gateway()]
        enter = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        clients.append(subprocess.Popen([*enter, *words], stdout=subprocess.PIPE, text=True))
        return clients[-1]

    yield begin
    for client in clients:
        client.kill()
        client.wait()
        assert client.stdout is not None
        client.stdout.close()


def test_a_fleet_of_another_pid_namespace_is_in_use(
    journal: FleetJournal, other_namespace: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    client = other_namespace()
    assert client.stdout is not None
    fleet_id = client.stdout.readline().strip()
    (record,) = journal.records()
    assert (record.id, record.ownership) == (fleet_id, "in use")
    command = command_of(journal, tmp_path)
    listed = command.run("fleet", "list").expect(0).stdout
    assert "2 of 2 machines alive, in use by process" in listed and "in another PID namespace" in listed
    assert command.run("fleet", "down").expect(0).stdout == ""
    assert [record.ownership for record in journal.records()] == ["in use"]
    # If it is named, it is ended.
    assert command.run("fleet", "down", fleet_id).expect(0).stdout == f"{fleet_id}: 2 machines ended\n"
    assert list(journal.records()) == []


def test_a_machine_whose_owner_cannot_be_seen_from_here_is_not_swept() -> None:
    if reason := namespace_reason():
        pytest.skip(reason)
    text = "import time; from tradewind.fleet.owner import here; print(here().label, flush=True); time.sleep(600)"
    enter = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with subprocess.Popen([*enter, sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            label = owner.stdout.readline().strip()
            assert len(label) <= 63
            assert owner_state(label) == "elsewhere"
            assert owner_state(here().label) == "in use"
        finally:
            owner.kill()


@pytest.mark.parametrize(
    ("is_here", "ended_ago_s", "state"),
    [(True, -60, "warm"), (True, 60, "gone"), (False, -60, "warm"), (False, 60, "warm"), (False, 3700, "gone")],
)
def test_a_warm_fleet_of_a_host_whose_clock_is_late_is_not_swept(is_here: bool, ended_ago_s: int, state: str) -> None:
    """Its machines end by themselves, so a wait costs nothing; until then a transfer may use them."""
    label = Keeping(60, time.time() - ended_ago_s).owner_label
    assert owner_state(label if is_here else label.replace(here().host or "unknown", "0123456789abcdef")) == state


@pytest.mark.parametrize(("ago_s", "is_expected"), [(60, True), (180, False), (-3600, True)])
def test_a_machine_that_was_launched_before_the_clock_was_set_back_may_be_unlisted(
    journal: FleetJournal, ago_s: int, is_expected: bool
) -> None:
    """Nobody knows how long ago that was. A fleet that was closed without it would leave it running."""
    journal.open("one", "a test", LOCAL, {})
    journal.launched("one", "late", "site:a", LEASE_S)
    journal.record_attempt("one", Attempt(time.time(), "late", "site:a", "launched"))
    journal.database.write("UPDATE machines SET launched_unix_s = launched_unix_s - ?", (ago_s,))
    assert journal.may_be_unlisted("one", 120.0) == ({"late": 1} if is_expected else {})
    journal.close("one")


def test_a_fleet_whose_client_of_another_pid_namespace_died_is_abandoned(
    journal: FleetJournal, other_namespace: Callable[[], subprocess.Popen[str]]
) -> None:
    client = other_namespace()
    assert client.stdout is not None
    fleet_id = client.stdout.readline().strip()
    client.kill()
    client.wait()
    end_s = time.monotonic() + 30.0
    while not (record := journal.load(fleet_id)).abandoned:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert end_fleet(record, journal, find_gateway()).machines == 0
    assert list(journal.records()) == []


def test_machines_that_were_ordered_and_never_launched_are_told_apart(journal: FleetJournal) -> None:
    """Their client was killed before the provider had the order. Of the others there is a word, or too much time."""
    folder = journal.open("one", "a test", LOCAL, {})
    names = ("ghost", "answered", "accepted", "old")
    for name in names:
        journal.launched("one", name, "site:a", LEASE_S)
    journal.ready("one", "answered", 60.0)
    journal.record_attempt("one", Attempt(time.time(), "accepted", "site:a", "launched"))
    journal.record_attempt("one", Attempt(time.time(), "ghost", "site:a", "capacity"))
    journal.database.write("UPDATE machines SET launched_unix_s = launched_unix_s - 1000 WHERE name = 'old'")
    journal.give_back(folder.name)
    assert end_fleet(journal.load("one"), journal, find_gateway()) == EndedFleet(0, frozenset(["ghost"]))
    assert [name for name, _, _ in journal.lives("one")] == ["answered", "accepted", "old"]


@pytest.mark.parametrize(
    ("lease_s", "ago_s", "is_charged"),
    [
        pytest.param(60, 30, False, id="its lease lasts"),
        pytest.param(60, 90, True, id="it may have ended with its short lease"),
        pytest.param(None, 5, False, id="no lease can have ended"),
        pytest.param(None, 30, True, id="the shortest lease may have ended"),
        pytest.param(60, -30, True, id="the clock was set back"),
    ],
)
def test_a_machine_that_may_have_ended_before_it_was_looked_for_is_charged(
    journal: FleetJournal, lease_s: int | None, ago_s: int, is_charged: bool
) -> None:
    folder = journal.open("one", "a test", LOCAL, {})
    journal.launched("one", "ghost", "site:a", lease_s)
    journal.database.write("UPDATE machines SET launched_unix_s = launched_unix_s - ?", (ago_s,))
    journal.give_back(folder.name)
    ended = end_fleet(journal.load("one"), journal, find_gateway())
    assert ended.unlaunched == (frozenset() if is_charged else {"ghost"})
    assert len(journal.lives("one")) == is_charged


def test_two_clients_cannot_own_the_same_fleet(journal: FleetJournal) -> None:
    journal.open("one", "a test", {"kind": "local"}, {})
    with pytest.raises(GatewayError, match="fleet one is in use by another process"):
        FleetJournal(journal.folder.parent).open("one", "a test", {"kind": "local"}, {})
    journal.close("one")


def test_a_fleet_that_cannot_be_recorded_is_not_held(journal: FleetJournal) -> None:
    """Otherwise a server whose disk is full now and then keeps a lock and a folder for each attempt."""
    with journal.database.transaction() as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON fleets BEGIN SELECT RAISE(FAIL, 'disk full'); END")
    with pytest.raises(StateError, match="cannot be written"):
        journal.open("one", "a test", {"kind": "local"}, {})
    assert not is_locked(journal.path("one") / "owner.lock")


def test_a_running_fleet_is_in_use_and_names_its_owner(journal: FleetJournal) -> None:
    binary = find_gateway()
    provider = make_provider(LOCAL, binary, journal)
    plan = plan_between("site:a", "site:b")
    fleet = Fleet(provider, journal, plan, binary, purpose="a test", settings=FleetSettings(lease_s=3))
    try:
        (record,) = journal.records()
        assert record.ownership == "in use" and record.owner == here()
        assert time.time() - record.heartbeat_unix_s < 600
        journal.database.write("UPDATE fleets SET heartbeat_unix_s = 0")
        end_s = time.monotonic() + 30.0
        while next(journal.records()).heartbeat_unix_s == 0:
            assert time.monotonic() < end_s, "the heartbeat is not written"
            time.sleep(0.05)
    finally:
        fleet.close()
    with pytest.raises(FleetNotFound, match="no fleet"):
        journal.load(fleet.id)


def test_a_fleet_of_a_copied_state_folder_belongs_to_the_original(journal: FleetJournal, tmp_path: Path) -> None:
    """The lock of the copy is free, but the owner lives and holds the lock of the original."""
    journal.open("one", "a test", {"kind": "local"}, {})
    copied = FleetJournal(shutil.copytree(journal.folder.parent, tmp_path / "copied"))
    assert list(copied.records()) == []
    (found,) = copied.unreadable()
    assert found.id == "one" and "belongs to another state folder" in found.because
    (record,) = FleetJournal(journal.folder.parent).records()
    assert record.ownership == "in use"
    journal.close("one")


def test_machines_of_a_sky_that_is_down_can_be_ended(journal: FleetJournal, tmp_path: Path) -> None:
    """The emulator was killed, and its network with it. The gateways are separate processes."""
    provider = {"kind": "sky", "sky": str(tmp_path / "gone")}
    folder = journal.open(f"one-{OWN}", "a test", provider, {"local": "site:a"})
    journal.give_back(folder.name)
    with machine_of(folder) as machine:
        assert end_fleet(journal.load(folder.name), journal, find_gateway()).machines == 1
        machine.wait(10)
    assert list(journal.records()) == []
