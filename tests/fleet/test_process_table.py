"""Processes found by a mark in their environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from tradewind.fleet.process_table import MACHINE_VARIABLE, mark_of
from tradewind.fleet.running import find_process

TIMES = 2000

#: Becomes itself from a thread that is not the first one, as a gateway does, and then waits.
AGAIN = """
import os, pathlib, sys, threading, time
left = int(sys.argv[1])
def again():
    if left > 0:
        os.execv(sys.executable, [sys.executable, "-S", "-E", __file__, str(left - 1)])
    pathlib.Path(__file__).with_name("done").touch()
for _ in range(8):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
thread = threading.Thread(target=again)
thread.start()
thread.join()
time.sleep(60)
"""
#: Asks for the process until it waits.
SHELL_LOOKS = """
while [ ! -e "$base/done" ]; do lives "$1" "$2" || { echo "has ended"; exit; }; done
echo lives
"""


def test_a_process_keeps_its_mark_while_it_becomes_another_program(tmp_path: Path) -> None:
    """Between two programs it has no environment. A machine that is overlooked then would be started a second time."""
    script = tmp_path / "again.sh"
    script.write_text(f'[ "$1" -gt 0 ] || exec sleep 600\nexec /bin/sh {script} $(($1 - 1))\n')
    mark = {"name": "one"}
    with subprocess.Popen(
        ["/bin/sh", script, str(TIMES)], env={MACHINE_VARIABLE: json.dumps(mark)}, start_new_session=True
    ) as process:
        try:
            found = find_process(process.pid)
            while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                assert mark_of(found, MACHINE_VARIABLE) == mark
        finally:
            process.kill()


def test_a_process_with_threads_lives_while_one_of_them_becomes_another_program(tmp_path: Path) -> None:
    """Between two programs /proc shows a zombie, because the first thread has ended."""
    (tmp_path / "again.py").write_text(AGAIN)
    words = [sys.executable, "-S", "-E", str(tmp_path / "again.py"), "60"]
    mark = json.dumps({"name": "one"})
    process = subprocess.Popen(words, env={**os.environ, MACHINE_VARIABLE: mark}, start_new_session=True)
    script, folder = files("tradewind.fleet.ssh").joinpath("machine.sh").read_text(), os.getcwd()
    try:
        found = find_process(process.pid)
        looks = 0
        shell = subprocess.Popen(
            ["sh", "-c", f"base={tmp_path}\n{script}\n{SHELL_LOOKS}", "sh", str(process.pid), folder],
            stdout=subprocess.PIPE,
            text=True,
        )
        while not (tmp_path / "done").exists() and process.poll() is None:
            assert found.alive and mark_of(found, MACHINE_VARIABLE) == {"name": "one"}, looks
            looks += 1
        said, _ = shell.communicate()
        assert looks > 10 and said == "lives\n"
    finally:
        process.kill()
        process.wait()
    assert not found.alive


def test_a_machine_whose_process_id_is_being_written_is_starting(tmp_path: Path) -> None:
    """A shell makes the file empty before it writes to it. A machine that is listed then has not ended."""
    script = files("tradewind.fleet.ssh").joinpath("machine.sh").read_text()
    states = []
    for text in (None, "", f"{os.getpid()}\n"):
        if text is not None:
            (tmp_path / "pid").write_text(text)
        command = ["sh", "-c", f"base={tmp_path}\n{script}\nstate {tmp_path}"]
        states.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert states == ["starting", "starting", "ended"]
