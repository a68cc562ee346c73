"""Wrong clocks for booted machines, by libfaketime: the kernel has no wall clock of a namespace's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testbed.servers.install import INSTALL_TIMEOUT_S, InstallError, built, require

__all__ = ["shifted_clock"]


def shifted_clock(ahead_s: int) -> dict[str, str]:
    """Return environment variables with which programs read a clock that is ahead; with a negative number, behind.

    They change what dynamically linked programs read, and no timer. Raises InstallError if Debian's libfaketime cannot
    be downloaded.
    """
    folder = built("libfaketime-1", _unpack)
    library = next(folder.glob("usr/lib/*/faketime/libfaketimeMT.so.1"))
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{ahead_s:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def _unpack(folder: Path) -> None:
    """Download and unpack the package; nothing is installed."""
    download = [require("apt-get"), "download", "-qq", "-o", "APT::Sandbox::User=root", "libfaketime"]
    try:
        subprocess.run(download, cwd=folder, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        for package in folder.glob("*.deb"):
            subprocess.run([require("dpkg"), "-x", str(package), str(folder)], check=True, capture_output=True)
    except subprocess.SubprocessError as error:
        raise InstallError(f"libfaketime cannot be downloaded: {error}") from error
