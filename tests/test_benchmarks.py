"""Benchmarks report a command that fails, and a tool that is missing."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.clients import at_once
from benchmarks.measure import Cost, Spread, run
from benchmarks.peers import Skipped
from benchmarks.tables import Cell, Entry, markdown

ENVIRONMENT = dict(os.environ)


def python(script: str) -> list[str | Path]:
    return [sys.executable, "-c", script]


def test_a_command_that_uses_too_much_memory_is_ended() -> None:
    hungry = python("import time; held = b'x' * (300 << 20); time.sleep(60)")
    cost = run(hungry, ENVIRONMENT, timeout_s=50, rss_bytes_max=200 << 20)
    assert cost.failure == "more than 0.2 GiB of memory"
    assert cost.wall_s < 50


def test_a_command_within_its_memory_is_not() -> None:
    assert run(python("pass"), ENVIRONMENT, timeout_s=50, rss_bytes_max=200 << 20).failure is None


def test_commands_at_once_all_run_and_fail_together(tmp_path: Path) -> None:
    touched = [tmp_path / f"it's {name}" for name in "ab"]
    good = [python(f"open({str(path)!r}, 'w')") for path in touched]
    both = at_once([*good])
    assert not isinstance(both, Skipped)
    assert run(both, ENVIRONMENT, timeout_s=50).failure is None
    assert all(path.exists() for path in touched)
    one_fails = at_once([python("raise SystemExit(3)"), *good])
    assert not isinstance(one_fails, Skipped)
    assert "exit 1" in str(run(one_fails, ENVIRONMENT, timeout_s=50).failure)


def test_a_skipped_tool_is_a_row_with_the_reason() -> None:
    assert at_once([Skipped("no go"), ["true"]]) == Skipped("no go")
    entries = Entry("tradewind", Spread((Cost(1, 1, 1),))), Entry("mc", Spread((Cost(0, 0, 0, "skipped: no go"),)))
    table = markdown([Cell("up", 1, 1, entries)], "")
    assert "| mc | skipped: no go |" in table
    assert "Ours to the best" not in table


def test_unknown_cells_are_refused_before_anything_is_installed() -> None:
    words = [sys.executable, "-m", "benchmarks", "local", "--cells", "small", "huge"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "invalid choice: 'huge'" in ended.stderr and "'listing'" in ended.stderr
