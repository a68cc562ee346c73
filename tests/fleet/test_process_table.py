"""Processes found by a mark in their environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tradewind.fleet.process_table import MACHINE_VARIABLE, mark_of
from tradewind.fleet.running import find_process

TIMES = 2000


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
