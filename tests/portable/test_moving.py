"""The static programs move data. That of another processor than this machine's is emulated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portable.static import PROCESSORS, PROGRAM, ROOT
from portable.toolchain import BuildError, emulator

WAIT_S = 200
OBJECTS = 20
#: Sizes with which a transfer lasts long enough for a relay to be killed during it.
OBJECT_BYTES, OBJECT_BYTES_EMULATED = 75_000_000, 8_000_000


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_relay_is_killed_and_every_byte_arrives(processor: str, tmp_path: Path) -> None:
    """All five gateways of the demo are static: lead, source, two relays and sink."""
    program = ROOT / "dist" / f"{PROGRAM}-{processor}"
    if not program.exists():
        pytest.skip(f"dist/{program.name} is missing; run make static STATIC={processor}")
    try:
        emulated = [] if processor == os.uname().machine else [str(emulator(processor))]
    except BuildError as error:
        pytest.skip(str(error))
    gateway, started, tree = tmp_path / PROGRAM, tmp_path / "started", tmp_path / "tree"
    gateway.write_text(f'#!/bin/sh\necho $$ >> {started}\nexec {" ".join([*emulated, str(program)])} "$@"\n')
    gateway.chmod(0o755)
    tree.mkdir()
    object_bytes = OBJECT_BYTES_EMULATED if emulated else OBJECT_BYTES
    for number in range(OBJECTS):
        (tree / str(number)).write_bytes(os.urandom(object_bytes))
    words = ["demo", "--local", "--tree", str(tree), "--size", f"{OBJECTS * object_bytes // 10**6}MB"]
    done = subprocess.run(
        [sys.executable, "-m", "tradewind.cli.main", *words],
        env={**os.environ, "TRADEWIND_GATEWAY": str(gateway), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "is killed. The other route takes over" in done.stderr
    assert "files are identical, and there is no extra file" in done.stderr
    assert len(started.read_text().split()) >= 5
