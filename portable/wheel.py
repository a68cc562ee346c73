"""Wheels that install without Rust and without a C compiler: the Python package with static programs.

`python -m portable.wheel` packs the programs of `dist/` into one wheel for each processor that has all of them. Equal
files give equal bytes: hatchling records no time of the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from hatch_build import CONSOLE, PROGRAMS_VARIABLE, TAG_VARIABLE
from portable.static import PROCESSORS, PROGRAMS, ROOT
from portable.toolchain import BuildError

__all__ = ["CONSOLE_PAGE", "build_wheel", "require_console", "tag_of"]

#: The page of the web console in a wheel.
CONSOLE_PAGE = f"{CONSOLE.removeprefix('src/')}/index.html"
#: The oldest C libraries that pip's tags name on both processors. A static program needs none, so both are true.
PLATFORMS = ("manylinux_2_17", "musllinux_1_1")


def tag_of(processor: str) -> str:
    """Return the tag of a wheel with static programs for a processor."""
    return f"py3-none-{'.'.join(f'{platform}_{processor}' for platform in PLATFORMS)}"


def build_wheel(processor: str, programs: Path, folder: Path) -> Path:
    """Build the wheel for a processor from `programs/PROGRAM-PROCESSOR`, and return its path in `folder`.

    Raises BuildError, also if the web console is not in it.
    """
    with tempfile.TemporaryDirectory() as held:
        for program in PROGRAMS:
            shutil.copy(programs / f"{program}-{processor}", Path(held) / program)
        environment = {**os.environ, PROGRAMS_VARIABLE: held, TAG_VARIABLE: tag_of(processor)}
        words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"the wheel for {processor} cannot be built:\n{done.stdout}{done.stderr}")
    (path,) = folder.glob(f"*-{tag_of(processor)}.whl")
    require_console(path)
    return path


def require_console(wheel: Path) -> None:
    """Remove a wheel that lacks the web console, and raise BuildError."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    if CONSOLE_PAGE not in names:
        wheel.unlink()
        raise BuildError(f"{wheel.name} has no web console", "run make console")


def main() -> int:
    """Build the wheels of the processors that have all programs in `dist/`."""
    dist = ROOT / "dist"
    try:
        ready = [name for name in PROCESSORS if all((dist / f"{program}-{name}").exists() for program in PROGRAMS)]
        if not ready:
            raise BuildError("dist/ has not all programs of any processor", "run make static")
        # Wheels of other versions would be installed by the commands of the guide, too.
        for old in dist.glob("*.whl"):
            old.unlink()
        for processor in ready:
            path = build_wheel(processor, dist, dist)
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    except BuildError as error:
        print(f"error: {error}\nhint: {error.hint}" if error.hint else f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
