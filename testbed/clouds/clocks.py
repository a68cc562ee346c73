"""Wrong clocks for booted machines, by libfaketime: the kernel has no wall clock of a namespace's own."""

from __future__ import annotations

from testbed.clouds.debian_packages import unpacked

__all__ = ["shifted_clock"]


def shifted_clock(ahead_s: int) -> dict[str, str]:
    """Return environment variables with which programs read a clock that is ahead; with a negative number, behind.

    They change what dynamically linked programs read, and no timer. Raises InstallError if Debian's libfaketime cannot
    be downloaded.
    """
    folder = unpacked("libfaketime-1", ["libfaketime"])
    library = next(folder.glob("usr/lib/*/faketime/libfaketimeMT.so.1"))
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{ahead_s:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
