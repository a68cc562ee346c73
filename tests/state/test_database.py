"""The state folder's database: two writers, kills, damage, a full disk, folders that cannot be written."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from testbed.drive import Command
from tradewind.errors import ConfigError, StateError
from tradewind.state import database as module
from tradewind.state.database import DATABASE_FILE, KEPT_LOG_BYTES_MAX, Database, open_database
from tradewind.state.filesystem import keeps_shared_memory, type_of
from tradewind.state.schema import VERSION


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return open_database(tmp_path / "state")


def beat(database: Database, fleet: str = "f") -> None:
    database.write("INSERT INTO leases VALUES (?, (SELECT count(*) FROM leases), 0)", (fleet,))


def test_reading_creates_nothing(database: Database) -> None:
    assert database.rows("SELECT * FROM jobs") == []
    assert database.row("SELECT 1 FROM jobs") is None
    assert not os.path.exists(database.state_dir)
    beat(database)
    assert database.rows("SELECT count(*) FROM leases") == [(1,)]
    assert database.rows("PRAGMA user_version") == [(VERSION,)]
    assert stat.S_IMODE(os.stat(database.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(database.state_dir).st_mode) == 0o700


def test_an_exception_rolls_back(database: Database) -> None:
    with pytest.raises(KeyboardInterrupt), database.transaction() as connection:
        connection.execute("INSERT INTO leases VALUES ('a', 'b', 1)")
        raise KeyboardInterrupt
    assert database.rows("SELECT * FROM leases") == []
    beat(database)


def test_a_folders_database_is_shared_while_in_use(tmp_path: Path) -> None:
    one = open_database(tmp_path)
    assert open_database(str(tmp_path)) is one
    assert open_database(tmp_path / "other") is not one
    beat(one)
    os.unlink(one.path)
    beat(one)
    assert one.rows("SELECT count(*) FROM leases") == [(1,)], "a new file in its place is reopened"


WRITER = """
import sys
from tradewind.state.database import open_database
database = open_database(sys.argv[1])
for number in range(int(sys.argv[2])):
    with database.transaction() as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM leases")
        connection.execute("INSERT INTO leases VALUES (?, ?, ?)", (sys.argv[3], number, count))
    print(number, flush=True)
"""


def writer(database: Database, count: int, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, database.state_dir, str(count), name]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_that_start_together_create_one_database_and_lose_nothing(database: Database) -> None:
    writers = [writer(database, 30, f"writer {number}") for number in range(4)]
    for each in writers:
        each.communicate()
        assert each.returncode == 0
    counts = [row[0] for row in database.rows("SELECT lapses_unix_s FROM leases ORDER BY lapses_unix_s")]
    assert counts == list(range(120)), "each process saw all earlier commits, and no other one wrote meanwhile"


def test_threads_share_a_database(database: Database) -> None:
    def work(name: str) -> None:
        for _ in range(50):
            beat(database, name)

    threads = [threading.Thread(target=work, args=(f"{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.rows("SELECT count(*) FROM leases") == [(200,)]


def test_what_was_committed_survives_a_kill(database: Database) -> None:
    killed = writer(database, 100_000, "killed")
    assert killed.stdout is not None
    last = -1
    for line in killed.stdout:
        last = int(line)
        if last == 50:
            killed.send_signal(signal.SIGKILL)
    killed.communicate()
    ((count,),) = database.rows("SELECT count(*) FROM leases")
    assert count >= last + 1
    assert database.rows("PRAGMA integrity_check") == [("ok",)]


def test_the_wait_for_another_writer_is_limited(database: Database) -> None:
    beat(database)
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began_s = time.monotonic()
    with pytest.raises(StateError, match="locked by another process"), database.transaction(busy_s=0.3):
        pass
    assert 0.3 <= time.monotonic() - began_s < 5
    assert database.rows("SELECT count(*) FROM leases") == [(1,)], "readers do not wait for writers"
    other.execute("ROLLBACK")
    other.close()
    beat(database)


def test_a_forked_process_has_its_own_connection(database: Database) -> None:
    beat(database)
    child = os.fork()
    if child == 0:
        try:
            beat(database, "child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    beat(database)
    assert database.rows("SELECT count(*) FROM leases") == [(3,)]


@pytest.mark.parametrize("damage", ["not a database", "header", "page"])
def test_a_damaged_database_is_reported_in_one_line(tmp_path: Path, damage: str) -> None:
    command = Command(tmp_path / "home")
    (tmp_path / "a").write_text("x")
    command.run("cp", tmp_path / "a", tmp_path / "b").expect(0)
    path = command.state / DATABASE_FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT 1 FROM jobs")  # The last to close moves the log into the database.
    content = bytearray(path.read_bytes())
    if damage == "not a database":
        content = bytearray(b"hello" * 1000)
    elif damage == "header":
        content[20:90] = b"\xff" * 70
    else:
        content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    for name in ("-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    for words in (["jobs", "list"], ["fleet", "list"], ["cp", tmp_path / "a", tmp_path / "b"], ["jobs", "show", "x"]):
        done = command.run(*words).expect(1)
        assert done.stderr.startswith("error: ") and f"{path} is damaged: " in done.stderr
        assert "hint: restore it from a copy, or recover it: docs/guides/troubleshooting.md" in done.stderr
        assert len(done.stderr.splitlines()) == 2


def test_a_command_leaves_a_short_log_and_moves_a_long_one(tmp_path: Path) -> None:
    command = Command(tmp_path / "home")
    (tmp_path / "a").write_text("x")
    log, lengths = command.state / f"{DATABASE_FILE}-wal", list[int]()
    for _ in range(30):
        command.run("cp", tmp_path / "a", tmp_path / "b").expect(0)
        lengths.append(log.stat().st_size if log.exists() else 0)
        if 0 in lengths:
            break
    assert lengths[-1] == 0 < lengths[-2] <= KEPT_LOG_BYTES_MAX, lengths
    assert len(command.jobs()) == len(lengths), "no job was lost with a log"


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = Database(str(tmp_path))
    beat(database)
    database.write("PRAGMA user_version=99")
    for again in (Database(str(tmp_path)), Database(str(tmp_path))):
        with pytest.raises(StateError, match="newer version of tradewind: format 99; this version reads") as refused:
            again.rows("SELECT 1")
        assert "update tradewind" in (refused.value.hint or "")


def test_a_full_disk_is_reported_in_one_line(database: Database) -> None:
    beat(database)
    with pytest.raises(StateError, match="no space left on its disk"), database.transaction() as connection:
        ((pages,),) = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count={pages}")
        connection.execute("INSERT INTO events VALUES ('a', 1, 1, ?)", ("x" * 100_000,))
    assert database.rows("SELECT count(*) FROM events") == [(0,)]


def test_a_pipe_in_its_place_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DATABASE_FILE)
    with pytest.raises(StateError, match="is not a regular file"):
        open_database(tmp_path).rows("SELECT 1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_database_of_another_user_is_refused(database: Database) -> None:
    beat(database)
    os.chown(database.path, 54321, 54321)
    with pytest.raises(ConfigError, match="belongs to user 54321"):
        Database(database.state_dir).rows("SELECT 1")


def test_a_folder_that_cannot_be_written_can_be_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(database)
    copy = Database(database.state_dir)
    monkeypatch.setattr(copy, "_can_write", lambda: False)  # Root may write everywhere.
    assert copy.rows("SELECT count(*) FROM leases") == [(1,)]
    still = Database(database.state_dir)
    monkeypatch.setattr(still, "_can_write", lambda: False)
    os.chmod(database.state_dir, 0o500)
    try:
        assert still.rows("SELECT count(*) FROM leases") == [(1,)]
    finally:
        os.chmod(database.state_dir, 0o700)


def test_the_journal_follows_the_file_system(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(database)
    assert database.journal_mode() == ("wal" if keeps_shared_memory(database.state_dir) else "delete")
    for kept, mode in ((False, "delete"), (True, "wal")):
        monkeypatch.setattr(module, "keeps_shared_memory", lambda _, kept=kept: kept)
        database._leave()  # Changing the journal mode needs the only open connection.
        beat(database)
        assert database.journal_mode() == mode


def test_writers_wait_for_each_other_on_a_network_file_system(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "keeps_shared_memory", lambda _: False)
    beat(database)
    other = Database(database.state_dir)

    def read() -> None:
        for _ in range(300):
            other.rows("SELECT count(*) FROM leases")

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        beat(database)
    reader.join()
    assert other.rows("SELECT count(*) FROM leases") == [(31,)]


MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:31 / /home/a\\040b rw - xfs /dev/sdb rw
40 22 0:40 / /mnt rw - tmpfs tmpfs rw
41 40 0:41 / /mnt rw - fuse.sshfs host: rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/homes/x", "ext4"),
        ("/home", "nfs4"),
        ("/home/x/y", "nfs4"),
        ("/home/a b/c", "xfs"),
        ("/mnt/x", "fuse.sshfs"),
    ],
)
def test_the_file_system_type_is_that_of_the_nearest_mount(tmp_path: Path, folder: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert type_of(folder, str(tmp_path / "mountinfo")) == kind
    assert type_of(folder, str(tmp_path / "missing")) is None
