"""Static programs, which need nothing of the machine that they run on, not even a libc.

`python -m portable.static [PROCESSOR …]` builds `dist/tradewind-gateway-PROCESSOR` and `dist/tradewind-wan-PROCESSOR`,
and writes their SHA-256 to `dist/SHA256SUMS`. Processors are named as `uname -m` names them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from portable.toolchain import BuildError, cache_folder, cargo_environment, static_tools

__all__ = ["PROCESSORS", "PROGRAM", "PROGRAMS", "ROOT", "build_static"]

ROOT = Path(__file__).parent.parent
PROCESSORS = ("x86_64", "aarch64")
PROGRAM = "tradewind-gateway"
#: Each is a package of the Cargo workspace with one binary of the same name.
PROGRAMS = (PROGRAM, "tradewind-wan")
PROFILE = "portable"


def build_static(program: str, processor: str, folder: Path) -> Path:
    """Build a program for a processor and return its path, `folder/PROGRAM-PROCESSOR`.

    Cargo's intermediate files stay in the cache folder, so that the next build is incremental. Raises BuildError.
    """
    tools = static_tools()
    target = f"{processor}-unknown-linux-musl"
    built = cache_folder() / "target"
    words = [str(tools.zigbuild), "zigbuild", "-Zbuild-std=std,panic_unwind", "--profile", PROFILE, "--locked"]
    words += ["--package", program, "--target", target, "--target-dir", str(built)]
    if subprocess.run(words, cwd=ROOT, env=cargo_environment(tools)).returncode != 0:
        raise BuildError(f"{program} for {processor} cannot be built; the compiler's messages are above")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program}-{processor}"
    # In two steps, so that nobody starts half a program.
    partial = path.with_suffix(".partial")
    shutil.copyfile(built / target / PROFILE / program, partial)
    partial.chmod(0o755)
    os.replace(partial, path)
    return path


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of all programs in `folder`, as `sha256sum` does."""
    wanted = sorted(folder / f"{program}-{processor}" for program in PROGRAMS for processor in PROCESSORS)
    paths = [path for path in wanted if path.exists()]
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / "SHA256SUMS").write_text("".join(lines))


def main(arguments: list[str]) -> int:
    """Build the programs for the named processors, or for all."""
    unknown = sorted(set(arguments) - set(PROCESSORS))
    try:
        if unknown:
            raise BuildError(f"unknown processor {unknown[0]}", f"the processors are {', '.join(PROCESSORS)}")
        for processor in arguments or PROCESSORS:
            for program in PROGRAMS:
                path = build_static(program, processor, ROOT / "dist")
                print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
        write_sums(ROOT / "dist")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
