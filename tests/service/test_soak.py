"""A short soak of the transfer service: three replicas, some jobs and a few faults, and all invariants hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.debian import debian_program
from testbed.servers import InstallError


@pytest.mark.slow
def test_a_short_soak_finds_no_violation(tmp_path: Path) -> None:
    try:
        for program in ("haproxy", "initdb"):
            debian_program(program)
    except InstallError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "benchmarks.service", "soak", "--minutes", "0.5", "--jobs", "16", "--faults", "5"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "soak.json").read_text())
    assert sum(report["faults"].values()) == 5
    assert report["checks"]
    assert not any(one["violations"] for one in report["checks"])
