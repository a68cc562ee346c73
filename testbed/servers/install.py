"""Install test servers once per machine, into the user's cache folder, with the ordinary package clients.

Each tool has a folder named after its version, so versions do not mix. A marker file shows that a folder is complete. A
lock keeps parallel test runs from installing the same tool twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

INSTALL_TIMEOUT_S = 1_800
"""Timeout of an installation (the longest, MinIO's build, takes several minutes of CPU time)."""


class InstallError(RuntimeError):
    """A tool could not be installed. The message ends with the last lines of the installer's output."""


def cache_folder() -> Path:
    """Return the folder of installed tools: ``$XDG_CACHE_HOME/tradewind-testbed``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tradewind-testbed"


def go_program(name: str, module: str, version: str) -> Path:
    """Return the path of the program ``name``, built by ``go install module@version``."""

    def build(folder: Path) -> None:
        require("go")
        _run(["go", "install", f"{module}@{version}"], {"GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"})

    return _once(f"{name}-{version}", build) / name


def own_go_program(name: str, module: Path) -> Path:
    """Return the path of the program ``name``, built from a module here; a changed module is built again."""
    files = sorted(path for path in module.iterdir() if path.suffix == ".go" or path.name in ("go.mod", "go.sum"))
    digest = sha256(b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in files)).hexdigest()

    def build(folder: Path) -> None:
        require("go")
        _run(["go", "build", "-C", str(module), "-buildvcs=false", "-o", str(folder / name), "."])

    return _once(f"{name}-{digest[:16]}", build) / name


def python_environment(name: str, requirements: list[str]) -> Path:
    """Return a virtual environment with ``requirements``, whose versions must be part of ``name``."""

    def build(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])

    return _once(f"{name}-py{sys.version_info.major}.{sys.version_info.minor}", build)


def npm_package(name: str, version: str) -> Path:
    """Return the folder of an npm package with its dependencies, installed without scripts."""

    def build(folder: Path) -> None:
        require("npm")
        _run(
            [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--prefix",
                str(folder),
                f"{name}@{version}",
            ]
        )

    return _once(f"{name}-{version}", build) / "node_modules" / name


def built(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder ``name`` of the cache, which ``build`` fills if it is missing. The name has a version."""
    return _once(name, build)


def is_built(name: str) -> bool:
    """Return whether the cache has the complete folder ``name``."""
    return (cache_folder() / f"{name}.complete").exists()


def require(program: str) -> str:
    """Return the path of a program, which must be on ``PATH``."""
    found = shutil.which(program)
    if found is None:
        raise InstallError(f"{program} is not on PATH")
    return found


def _once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder ``name`` of the cache; build it first if it is missing."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder, marker = cache / name, cache / f"{name}.complete"
    if marker.exists():
        return folder
    with _locked(cache / f"{name}.lock"):
        if marker.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            build(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        marker.touch()
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: list[str], extra_environment: dict[str, str] | None = None) -> None:
    environment = {**os.environ, **(extra_environment or {})}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command)} did not end within {INSTALL_TIMEOUT_S} s") from error
    if done.returncode != 0:
        last_lines = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise InstallError(f"{' '.join(command)} failed with {done.returncode}:\n{last_lines}")
