"""The line that says how long machines took to start."""

from __future__ import annotations

from tradewind.cli.boots import boot_lines
from tradewind.fleet.boots import Boot


def test_the_slowest_machine_is_one_that_moved_bytes() -> None:
    slow = Boot("a", "cloud:a", 0.0, 30.0)
    used = Boot("b", "cloud:b", 40.0, 50.0, first_byte_unix_s=51.0)
    assert list(boot_lines([])) == []
    assert list(boot_lines([slow])) == ["started 1 machine; the slowest was enrolled 30.0 s after its order"]
    (line,) = boot_lines([slow, used])
    assert line.startswith("started 2 machines; the slowest that moved bytes was enrolled 10.0 s, first byte 11.0 s ")
    (line,) = boot_lines([used, used])
    assert line.startswith("started 2 machines; the slowest was enrolled 10.0 s, ")
