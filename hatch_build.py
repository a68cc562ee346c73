"""Builds the gateway with Cargo and ships it beside the Python package, in wheels and in editable installs alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BINARY = "tradewind-gateway"


class GatewayBuildHook(BuildHookInterface[Any]):
    """Runs `cargo build --release --locked`; Cargo's `target/` is kept, so that the next run is incremental."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the binary to the wheel's scripts and gives the wheel this platform's tag."""
        if self.target_name != "wheel":
            return
        build_data["shared_scripts"] = {str(build_gateway(Path(self.root))): BINARY}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def build_gateway(root: Path) -> Path:
    """Builds the release binary below `root` and returns its path. Ends with one clear line when a tool is missing."""
    for tool, advice in (
        ("cargo", "install Rust 1.88 or newer: https://rustup.rs"),
        ("cc", "install a C compiler, e.g. gcc"),
    ):
        if shutil.which(tool) is None:
            raise SystemExit(f"error: {tool} is not on PATH, the gateway cannot be built; {advice}")
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", BINARY], cwd=root, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    return root / target / "release" / BINARY
