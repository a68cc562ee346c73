"""Build the programs with Cargo and the web console with npm, and ship them with the Python package.

That is so in wheels and in editable installs. Without npm the package has no console.

`make wheel` (portable/wheel.py) has static programs already: two variables name their folder and the wheel's tag.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Each is a package of the Cargo workspace with one binary of the same name.
BINARIES = ("tradewind-gateway", "tradewind-wan")
#: Folder of the built console.
CONSOLE = "src/tradewind/service/static"
#: Folder of programs that are built already. Without it, Cargo builds them.
PROGRAMS_VARIABLE = "TRADEWIND_WHEEL_PROGRAMS"
#: The wheel's tag for those programs.
TAG_VARIABLE = "TRADEWIND_WHEEL_TAG"


class ProgramsBuildHook(BuildHookInterface[Any]):
    """Runs `cargo build --release --locked`, unless the programs are built already.

    Cargo's `target/` is kept, so that the next build is incremental.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the binaries to the wheel's scripts, and set the wheel's tag to this platform."""
        if self.target_name != "wheel":
            return
        build_console(Path(self.root))
        built = os.environ.get(PROGRAMS_VARIABLE)
        programs = [Path(built) / binary for binary in BINARIES] if built else build_programs(Path(self.root))
        build_data["shared_scripts"] = {str(path): path.name for path in programs}
        build_data["pure_python"] = False
        build_data["tag"] = os.environ[TAG_VARIABLE] if built else _tag_of_this_machine()


def _tag_of_this_machine() -> str:
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build_console(root: Path) -> None:
    """Build the web console below `root`, unless it is built or npm is missing."""
    if (root / CONSOLE / "index.html").exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        print("the web console was not built: npm is not on PATH; install Node 20 or newer", file=sys.stderr)
        return
    for words in ("ci", "--silent", "--no-audit", "--no-fund"), ("run", "--silent", "build"):
        if subprocess.run([npm, *words], cwd=root / "console").returncode != 0:
            print("the web console was not built; run make console to see why", file=sys.stderr)
            return


def build_programs(root: Path) -> list[Path]:
    """Build the release binaries below `root` and return their paths. Exits with an error line if a tool is missing."""
    for tool, advice in (
        ("cargo", "install Rust 1.89 or newer: https://rustup.rs"),
        ("cc", "install a C compiler, e.g. gcc"),
    ):
        if shutil.which(tool) is None:
            raise SystemExit(f"error: {tool} is not on PATH, the programs cannot be built; {advice}")
    packages = [word for binary in BINARIES for word in ("--package", binary)]
    subprocess.run(["cargo", "build", "--release", "--locked", *packages], cwd=root, check=True)
    target = root / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
    return [target / binary for binary in BINARIES]
