"""The programs of a lab, built once per machine into the cache of test servers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testbed.kubelab.image import write_image
from testbed.servers import InstallError
from testbed.servers.install import INSTALL_TIMEOUT_S, built, is_built, require

__all__ = ["PAUSE_IMAGE", "installed", "lab_not_built", "lab_unavailable"]

VERSION = "1.33.13"
"""Version of Kubernetes, as in `components/go.mod`."""
RECIPE = 2
"""Number of the list of packages, so that a changed one is not taken from the cache."""
_NAME = f"kubelab-{VERSION}-{RECIPE}"
COMPONENTS = Path(__file__).with_name("components")
PAUSE_IMAGE = "local.test/pause:1"
PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "nftables",
    "libnftables1",
    "libjansson4",
    "libedit2",
    "libbsd0",
    "libmd0",
    "libip6tc2",
    "libip4tc2",
    "libxtables12",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
    "libmnl0",
)
"""Debian packages of a node. They are unpacked, not installed: no daemon of theirs starts."""
IPTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")


def lab_unavailable() -> str | None:
    """Return why no lab can run on this machine, or None. Does not build anything."""
    if os.geteuid() != 0:
        return "a Kubernetes lab needs root"
    for program in ("go", "apt-get", "dpkg", "ip", "unshare", "nsenter", "openssl"):
        if shutil.which(program) is None:
            return f"a Kubernetes lab needs {program}"
    return None


def installed() -> Path:
    """Return the folder with `bin`, `rootfs` and `images`. The first build takes 5 to 15 minutes on two cores.

    Raises InstallError.
    """
    if reason := lab_unavailable():
        raise InstallError(reason)
    return built(_NAME, _build)


def lab_not_built() -> str | None:
    """Return why no lab can be started here at once, with what to do, or None."""
    if reason := lab_unavailable():
        return reason
    return (
        None if is_built(_NAME) else "its programs are not built; `make clusters` builds them once, in 5 to 15 minutes"
    )


def _build(folder: Path) -> None:
    _unpack_packages(folder)
    _build_components(folder / "bin")
    (folder / "images").mkdir()
    write_image(folder / "images" / "pause.tar", PAUSE_IMAGE, {"/pause": folder / "bin" / "pause"})


def _unpack_packages(folder: Path) -> None:
    debs = folder / "debs"
    debs.mkdir(parents=True)
    _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *PACKAGES], debs)
    for package in debs.glob("*.deb"):
        _run(["dpkg", "-x", str(package), str(folder / "rootfs")], debs)
    shutil.rmtree(debs)
    for name in IPTABLES:
        link = folder / "rootfs" / "usr" / "sbin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("xtables-nft-multi")


def _build_components(target: Path) -> None:
    version = "k8s.io/component-base/version"
    major, minor, _ = VERSION.split(".")
    stamps = {
        "gitVersion": f"v{VERSION}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    flags = " ".join(["-s -w", *(f"-X {version}.{name}={value}" for name, value in stamps.items())])
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    for name, package in (("kubernetes", "."), ("pause", "./pause")):
        command = [require("nice"), "go", "build", "-trimpath", "-o", str(target / name), f"-ldflags={flags}", package]
        _run(command, COMPONENTS, environment)


def _run(command: list[str], folder: Path, more: dict[str, str] | None = None) -> None:
    environment = {**os.environ, **(more or {})}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{' '.join(command)} did not end within {INSTALL_TIMEOUT_S} s") from error
    if done.returncode != 0:
        last_lines = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise InstallError(f"{' '.join(command)} failed with {done.returncode}:\n{last_lines}")
