"""The script for real accounts, which no test runs: it parses, and spends nothing unless somebody agrees."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "testbed" / "live" / "try.sh"


def test_it_parses_and_explains_itself() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and "SRC_REGION DST DST_REGION" in done.stderr.replace("_URL", "")


def test_without_agreement_nothing_but_a_diagnosis_runs(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    command = tmp_path / "tradewind"
    command.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    words = [str(SCRIPT), "s3://a/x", "aws:us-east-1", "s3://b/x", "aws:eu-west-1"]
    done = subprocess.run(words, input="no\n", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.endswith("nothing was rented\n")
    assert calls.read_text() == "doctor\n"
