"""Modules that are imported at start: a short job takes about as long as its imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

from testbed.drive import Command

#: Modules that a local job must not import: our planner, other providers and replanning, what only rented machines,
#: earlier jobs and S3 need; Python's TLS, mail, hashes, compressors and slow modules, and solvers.
NOT_FOR_A_LOCAL_JOB = {
    "tradewind.catalog",
    "tradewind.planner",
    "tradewind.render",
    "tradewind.measure",
    "tradewind.sky.running",
    "tradewind.fleet.providers.sky",
    "tradewind.gateway.tls",
    "tradewind.model.catalog",
    "tradewind.model.overlay",
    "tradewind.model.price",
    "tradewind.engine.adapt",
    "tradewind.engine.attach",
    "tradewind.engine.aws_profile",
    "tradewind.engine.choice",
    "tradewind.engine.ground",
    "tradewind.engine.kept_proposal",
    "tradewind.engine.placed",
    "tradewind.engine.receipt",
    "tradewind.engine.replan",
    "tradewind.engine.skies",
    "tradewind.engine.survey",
    "tradewind.engine.topology",
    "tradewind.fleet.earlier_orders",
    "tradewind.fleet.ending",
    "tradewind.fleet.enrolment",
    "tradewind.fleet.keeping",
    "tradewind.fleet.readiness",
    "tradewind.gateway.owner",
    "_hashlib",
    "bz2",
    "dataclasses",
    "difflib",
    "email",
    "hashlib",
    "highspy",
    "http",
    "inspect",
    "logging",
    "lzma",
    "numpy",
    "platform",
    "random",
    "secrets",
    "shlex",
    "shutil",
    "ssl",
    "zlib",
}


def loaded(command: Command, *words: str) -> set[str]:
    """Return the modules that a process has imported after running a command line."""
    code = (
        "import json, os, sys; from tradewind.cli.main import main\n"
        f"code = main({list(words)!r}); os.write(2, json.dumps(sorted(sys.modules)).encode()); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=command.full_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))


def test_a_local_copy_imports_neither_planner_nor_tls(command: Command, tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "destination"
    source.write_bytes(os.urandom(1000))
    modules = loaded(command, "cp", "-q", str(source), str(destination))
    assert destination.read_bytes() == source.read_bytes()
    assert "tradewind.engine.running" in modules
    assert sorted(modules & NOT_FOR_A_LOCAL_JOB) == []


def test_the_version_imports_nothing(command: Command) -> None:
    modules = {name for name in loaded(command, "--version") if name.startswith("tradewind")}
    assert modules == {"tradewind", "tradewind._version", "tradewind.cli", "tradewind.cli.main"}


def test_the_client_of_gateways_is_imported_while_the_gateway_starts() -> None:
    code = "import sys, tradewind.cli.follow, tradewind.engine.engine; print('socket' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
