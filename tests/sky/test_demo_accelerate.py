"""The demo of flow acceleration: real downloads by every way, whose bytes are compared."""

from __future__ import annotations

import shutil

import pytest

from testbed.drive import Command


@pytest.mark.slow
def test_downloads_arrive_directly_tuned_and_through_proxies(command: Command) -> None:
    done = command.run("demo", "--accelerate", "--size", "2MB").expect(0)
    programs = 1 if shutil.which("git") is None else 2
    for name in ("direct", "direct, tuned", "one split", "two splits"):
        assert f"   {name:<14} curl " in done.stderr
    assert f"the bytes of all {4 * programs} downloads equal the originals" in done.stderr
