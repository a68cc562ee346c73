"""The tools of the static build, from package registries alone, in the user's cache folder.

A static program needs Rust's standard library for musl. Debian has none, so it is built from source, and that source
must be of the compiler's version: Debian has both as packages (`rustc-web`, `rust-web-src`). They are unpacked, not
installed. The linker, the C compiler and musl itself are zig's, from PyPI. Cargo is the machine's own.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BuildError", "Tools", "cache_folder", "cargo_environment", "emulator", "static_tools"]

ZIG = "ziglang==0.17.1"
CARGO_ZIGBUILD = "cargo-zigbuild==0.24.0"
#: Debian's packages of one Rust version. Two more have the version in their names; see `_debian_packages`.
RUST_PACKAGES = ("rustc-web", "libstd-rust-web-dev", "rust-web-src")
#: Between the flags in CARGO_ENCODED_RUSTFLAGS, so that they may contain spaces.
FLAG_SEPARATOR = "\x1f"
#: Parts of SQLite that the journal does not use: search in texts, trees of rectangles, and extensions as files.
SQLITE_FLAGS = (
    "-USQLITE_ENABLE_DBSTAT_VTAB",
    "-USQLITE_ENABLE_FTS3",
    "-USQLITE_ENABLE_FTS3_PARENTHESIS",
    "-USQLITE_ENABLE_FTS5",
    "-USQLITE_ENABLE_RTREE",
    "-USQLITE_SOUNDEX",
)
#: Output lines of a failed command that are shown.
LINES_SHOWN = 15


class BuildError(RuntimeError):
    """Something could not be built. `hint` says what to do, if that is known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Tools:
    """Programs of a build."""

    cargo: Path
    zigbuild: Path
    rustc: Path
    #: Folder of the compiler's shared libraries.
    libraries: Path


def cache_folder() -> Path:
    """Return the folder of tools and intermediate files: ``$XDG_CACHE_HOME/tradewind-portable``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tradewind-portable"


def static_tools() -> Tools:
    """Return the tools; install those that are missing. Raises BuildError."""
    cargo = _cargo()
    zig = cache_folder() / _name_of(f"{ZIG} {CARGO_ZIGBUILD}")
    _once(zig, _install_zig)
    packages = _debian_packages()
    folder = cache_folder() / _name_of(f"rust {packages['rustc-web']}")
    _once(folder, lambda where: _unpack(where, [f"{name}={version}" for name, version in packages.items()]))
    libraries = next(folder.glob("usr/lib/*/librustc_driver-*.so")).parent
    return Tools(cargo, zig / "bin" / "cargo-zigbuild", folder / "usr" / "bin" / "rustc", libraries)


def cargo_environment(tools: Tools) -> dict[str, str]:
    """Return the environment in which Cargo uses these tools."""
    path = os.pathsep.join([str(tools.zigbuild.parent), str(tools.cargo.parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "CARGO": str(tools.cargo)}
    # The caller's flags are for the machine's own processor.
    for name in ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"):
        environment.pop(name, None)
    environment |= {"RUSTC": str(tools.rustc), "LD_LIBRARY_PATH": str(tools.libraries)}
    # Allows `-Zbuild-std` in a stable compiler.
    environment["RUSTC_BOOTSTRAP"] = "1"
    # zig brings the start files, libc and libunwind. Otherwise rustc looks for its own, which Debian does not have.
    flags = ["-Clink-self-contained=no"]
    # Messages of panics name source files. The program should not say where it was built.
    flags += [f"--remap-path-prefix={folder}={name}" for folder, name in _renamed_folders().items()]
    environment["CARGO_ENCODED_RUSTFLAGS"] = FLAG_SEPARATOR.join(flags)
    environment["LIBSQLITE3_FLAGS"] = " ".join(SQLITE_FLAGS)
    # At level `s`, aws-lc would otherwise have no AES-GCM for AVX-512, which takes 0.4 times the time.
    environment["AWS_LC_SYS_SMALL"] = "0"
    return environment


def _renamed_folders() -> dict[Path, str]:
    """Return the folders of sources, with the names by which the program knows them."""
    cargo_home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return {cargo_home: "/cargo", cache_folder(): "/tools", Path(__file__).parent.parent: "/tradewind"}


def emulator(processor: str) -> Path:
    """Return QEMU's program that runs static programs of another processor; unpack Debian's if there is none on PATH.

    Raises BuildError.
    """
    name = f"qemu-{processor}-static"
    if found := shutil.which(name):
        return Path(found)
    _require("dpkg", "install QEMU's user emulation")
    folder = cache_folder() / "qemu"
    _once(folder, lambda where: _unpack(where, ["qemu-user-static"]))
    return folder / "usr" / "bin" / name


def _run(words: list[str | Path], environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a command and return its output. Raises BuildError with the last lines of a command that fails."""
    command = [str(word) for word in words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-LINES_SHOWN:])
        raise BuildError(f"{' '.join(command)}: exit code {done.returncode}:\n{last}")
    return done.stdout


def _require(program: str, hint: str) -> Path:
    """Return the path of a program on PATH. Raises BuildError."""
    found = shutil.which(program)
    if found is None:
        raise BuildError(f"{program} is not on PATH", hint)
    return Path(found)


def _cargo() -> Path:
    """Return the machine's Cargo itself: rustup's stand-in would set the compiler that belongs to it."""
    cargo = _require("cargo", "install Rust 1.89 or newer: https://rustup.rs")
    if shutil.which("rustup") is None:
        return cargo
    return Path(_run(["rustup", "which", "cargo"]).strip())


def _install_zig(folder: Path) -> None:
    _run([sys.executable, "-m", "venv", folder])
    _run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", ZIG, CARGO_ZIGBUILD])


def _debian_packages() -> dict[str, str]:
    """Return the packages of the newest Rust that apt knows, with their versions."""
    hint = "static programs are built on Debian 12 or newer, where Rust's library is packaged as source"
    _require("dpkg", hint)
    _require("apt-get", hint)
    std = _dependency("libstd-rust-web-dev", r"libstd-rust-web-[0-9.]+")
    packages = [*RUST_PACKAGES, std, _dependency(std, r"libllvm[0-9]+")]
    shown = _run(["apt-cache", "policy", *packages])
    found = dict(re.findall(r"^(\S+):\n.*\n\s+Candidate: (\S+)", shown, re.MULTILINE))
    missing = [name for name in packages if found.get(name, "(none)") == "(none)"]
    if missing:
        raise BuildError(f"apt knows no package {', '.join(missing)}", f"run apt-get update; {hint}")
    return found


def _dependency(package: str, pattern: str) -> str:
    found = re.findall(pattern, _run(["apt-cache", "depends", package]))
    if not found:
        raise BuildError(f"apt knows no package {package}", "run apt-get update; Debian 12 or newer has it")
    return str(found[-1])


def _unpack(folder: Path, packages: list[str]) -> None:
    """Download packages, `name` or `name=version`, and unpack them below a folder."""
    archives = folder / "archives"
    archives.mkdir()
    # As the calling user: apt's own user may not write here.
    _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages], folder=archives)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg", "-x", archive, folder])
    shutil.rmtree(archives)


def _name_of(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text)


def _once(folder: Path, build: Callable[[Path], None]) -> None:
    """Build a folder unless it is complete. Concurrent builds wait for each other."""
    complete = folder.with_name(folder.name + ".complete")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if complete.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        build(folder)
        complete.touch()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
