"""Real programs between two machines of a sky: an HTTP server, `curl` and `git clone`, and the comparison of bytes."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tradewind.acceleration.proxies import first_line, stop
from tradewind.errors import JobFailed, SkyUnavailable, VerificationMismatch
from tradewind.sky.running import Sky

__all__ = ["HTTP_PORT", "clone", "download", "has_git", "make_files", "require_curl", "serving"]

HTTP_PORT = 8000
FILE, REPOSITORY = "file", "repository.git"
#: A program that takes longer than this is ended.
FETCH_S = 900.0
BLOCK_BYTES = 1 << 20
#: Files of the repository.
TRACKED_FILES = 4


def require_curl() -> None:
    """Raise SkyUnavailable without `curl`."""
    if shutil.which("curl") is None:
        raise SkyUnavailable("demo --accelerate needs the program curl", hint="install curl")


def has_git() -> bool:
    """Return whether the program `git` is there."""
    return shutil.which("git") is not None


def make_files(folder: Path, size_bytes: int, repository_bytes: int) -> None:
    """Make a file of random bytes and, with git on this host, a repository, both for a plain HTTP server."""
    folder.mkdir(parents=True)
    _write_random(folder / FILE, size_bytes)
    if not has_git():
        return
    work = folder / "work"
    work.mkdir()
    for number in range(TRACKED_FILES):
        _write_random(work / f"file-{number}", repository_bytes // TRACKED_FILES)
    author = ["-c", "user.name=Tradewind", "-c", "user.email=demo@example.invalid"]
    steps = (
        ["init", "--quiet", str(work)],
        ["-C", str(work), "add", "."],
        ["-C", str(work), *author, "commit", "--quiet", "--message", "Add random files"],
        ["clone", "--quiet", "--bare", str(work), str(folder / REPOSITORY)],
        ["-C", str(folder / REPOSITORY), "repack", "-a", "-d", "--quiet"],
        # What a server without git's own protocol needs.
        ["-C", str(folder / REPOSITORY), "update-server-info"],
    )
    for step in steps:
        _run_here(["git", *step])


@contextmanager
def serving(sky: Sky, machine: str, folder: Path) -> Iterator[str]:
    """Serve a folder by HTTP within the block, with Python's server. Yields `ADDRESS:PORT`."""
    address = sky.machines[machine].address
    words = [sys.executable, "-u", "-m", "http.server", "--bind", address, "--directory", str(folder), str(HTTP_PORT)]
    if sys.version_info >= (3, 11):
        # With HTTP 1.0, git opens a connection for each of its many requests.
        words += ["--protocol", "HTTP/1.1"]
    process = sky.popen(machine, words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        first_line(process, "the HTTP server")
        yield f"{address}:{HTTP_PORT}"
    finally:
        stop(process)


def download(sky: Sky, machine: str, server: str, folder: Path, served: Path, proxy: str | None) -> float:
    """Download the file with curl, compare it, and return the time [s].

    Raises:
        JobFailed: curl failed.
        VerificationMismatch: the bytes differ.
    """
    copy = folder / FILE
    # The first option makes curl ignore the user's configuration.
    words = [
        "curl",
        "--disable",
        "--silent",
        "--show-error",
        "--fail",
        "--output",
        str(copy),
        f"http://{server}/{FILE}",
    ]
    elapsed_s = _timed(sky, machine, words, proxy)
    _require_equal(served / FILE, copy)
    copy.unlink()
    return elapsed_s


def clone(sky: Sky, machine: str, server: str, folder: Path, served: Path, proxy: str | None) -> float:
    """Clone the repository with git, compare its files, and return the time [s]. Raises as `download` does."""
    copy = folder / "clone"
    elapsed_s = _timed(sky, machine, ["git", "clone", "--quiet", f"http://{server}/{REPOSITORY}", str(copy)], proxy)
    for number in range(TRACKED_FILES):
        _require_equal(served / "work" / f"file-{number}", copy / f"file-{number}")
    shutil.rmtree(copy)
    return elapsed_s


def _timed(sky: Sky, machine: str, words: list[str], proxy: str | None) -> float:
    began_s = time.monotonic()
    try:
        done = sky.run(machine, words, capture_output=True, text=True, timeout=FETCH_S, env=_environment(proxy))
    except subprocess.TimeoutExpired:
        raise JobFailed(f"{words[0]} did not end within {FETCH_S:.0f} s") from None
    if done.returncode:
        raise JobFailed(f"{words[0]} ended with code {done.returncode}: {done.stderr.strip()}")
    return time.monotonic() - began_s


def _environment(proxy: str | None) -> Mapping[str, str]:
    """Return the environment without the user's proxies and git's configuration, and with the given proxy."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    kept |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}
    return kept if proxy is None else {**kept, "ALL_PROXY": proxy}


def _run_here(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=_environment(None))
    if done.returncode:
        raise JobFailed(f"{' '.join(words[:2])} ended with code {done.returncode}: {done.stderr.strip()}")


def _write_random(path: Path, size_bytes: int) -> None:
    with path.open("wb") as file:
        for start in range(0, size_bytes, BLOCK_BYTES):
            file.write(os.urandom(min(BLOCK_BYTES, size_bytes - start)))


def _require_equal(original: Path, copy: Path) -> None:
    if not copy.is_file() or not filecmp.cmp(original, copy, shallow=False):
        raise VerificationMismatch(f"{copy.name} differs from the original")
