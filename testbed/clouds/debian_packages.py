"""Programs and libraries of Debian packages, unpacked into the cache folder; nothing is installed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.servers.install import INSTALL_TIMEOUT_S, InstallError, built, require

__all__ = ["unpacked"]


def unpacked(name: str, packages: Sequence[str]) -> Path:
    """Return the folder `name` of the cache, with the files of these packages.

    Raises InstallError if they cannot be downloaded.
    """

    def unpack(folder: Path) -> None:
        download = [require("apt-get"), "download", "-qq", "-o", "APT::Sandbox::User=root", *packages]
        try:
            subprocess.run(download, cwd=folder, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
            for package in folder.glob("*.deb"):
                subprocess.run([require("dpkg"), "-x", str(package), str(folder)], check=True, capture_output=True)
        except subprocess.SubprocessError as error:
            raise InstallError(f"{', '.join(packages)} cannot be downloaded: {error}") from error

    return built(name, unpack)
