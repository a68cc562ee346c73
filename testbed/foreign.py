"""A root folder of another processor's Debian with Python, whose programs run under emulation.

The packages are unpacked into the user's cache folder, not installed. Programs run in namespaces of their own, where
the kernel starts each program of the processor by QEMU. Other processes of this machine do not see that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.servers.install import InstallError, built, require

__all__ = ["INSIDE", "foreign_command", "foreign_root"]

#: Debian's names, by processor.
ARCHITECTURES = {"aarch64": "arm64"}
#: The first bytes of each program, and which of their bits count, by processor, as the kernel's binfmt_misc reads them.
MAGIC = {
    "aarch64": (
        r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
        r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
    )
}
#: Wheels may use the C++ library, which pip does not install.
PACKAGES = ("python3-venv", "libstdc++6")
#: The folder under which programs inside see the shared folder.
INSIDE = "/mnt"
TIMEOUT_S = 600
_NAME = "debian-python-{processor}-1"
#: Flag F: the kernel opens the emulator now, because it cannot be found from the new root folder.
_ENTER = f"""
set -e
rule=$1 root=$2 shared=$3
shift 3
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$rule" >/proc/sys/fs/binfmt_misc/register
for folder in /dev /proc; do mount --rbind "$folder" "$root$folder"; done
mount --bind "$shared" "$root{INSIDE}"
exec chroot "$root" "$@"
"""


def foreign_root(processor: str) -> Path:
    """Return the root folder of a processor, about 110 MB. Raises InstallError."""
    for program in ("apt-get", "dpkg", "unshare", "chroot", "mount"):
        require(program)
    return built(_NAME.format(processor=processor), lambda folder: _build(folder, ARCHITECTURES[processor]))


def foreign_command(processor: str, emulator: Path, shared: Path, words: Sequence[str]) -> list[str]:
    """Return the command that runs a program of the root folder, which sees `shared` as `INSIDE`.

    It ends with all that it started. The kernel must be Linux 6.7 or newer.
    """
    start, mask = MAGIC[processor]
    rule = f":{processor}:M::{start}:{mask}:{emulator}:F"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*alone, "sh", "-c", _ENTER, "sh", rule, str(foreign_root(processor)), str(shared), *words]


def _build(folder: Path, architecture: str) -> None:
    state = folder / "apt"
    for name in ("state/lists/partial", "cache/archives/partial", "archives"):
        (state / name).mkdir(parents=True)
    (state / "state" / "status").touch()
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        # As the calling user: apt's own user may not write here.
        "APT::Sandbox::User": "root",
        "Dir::State": state / "state",
        "Dir::State::status": state / "state" / "status",
        "Dir::Cache": state / "cache",
    }
    (state / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(state / "apt.conf")}

    def apt(*words: str) -> str:
        done = subprocess.run(
            ["apt-get", *words],
            cwd=state / "archives",
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise InstallError(f"apt-get {words[0]} for {architecture}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    apt("update", "-qq")
    packages = re.findall(r"^Inst (\S+)", apt("install", "--simulate", *PACKAGES), re.MULTILINE)
    apt("download", "-qq", *packages)
    for archive in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", archive, folder], check=True, capture_output=True)
    shutil.rmtree(state)
    # Newer packages have these as links only.
    for name in ("bin", "lib", "sbin"):
        if not (folder / name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "tmp", INSIDE.strip("/")):
        (folder / name).mkdir(exist_ok=True)
