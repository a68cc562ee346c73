"""Where running skies are found again: one folder each below `$XDG_STATE_HOME/tradewind/skies`."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["skies_folder", "sky_folder"]


def skies_folder(state_dir: str | None) -> Path:
    """The folder of all skies, below `state_dir` or the usual state folder."""
    if state_dir is not None:
        return Path(state_dir).absolute() / "skies"
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "tradewind" / "skies"


def sky_folder(state_dir: str | None, file: Path) -> Path:
    """Where the socket and the log of this file's sky are; the same for all ways to write the file's path."""
    from hashlib import sha256

    place = str(file.resolve())
    return skies_folder(state_dir) / f"{file.stem[:20]}-{sha256(place.encode()).hexdigest()[:8]}"
