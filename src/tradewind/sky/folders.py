"""Where running skies are found: one folder each in `skies` of the state folder."""

from __future__ import annotations

from pathlib import Path

from tradewind.model.files import state_home

__all__ = ["TEMPORARY", "remove_left", "skies_folder", "sky_folder"]

#: How the name of a sky's folder begins that was made for it alone, where temporary files are.
TEMPORARY = "tw-sky-"


def skies_folder(state_dir: str | None) -> Path:
    """The folder of all skies, below the state folder, for which `state_dir` is the setting."""
    return Path(state_home(state_dir), "skies")


def sky_folder(state_dir: str | None, file: Path) -> Path:
    """Return the folder of the socket and log of this file's sky; the same for all spellings of the file's path."""
    from hashlib import sha256

    place = str(file.resolve())
    return skies_folder(state_dir) / f"{file.stem[:20]}-{sha256(place.encode()).hexdigest()[:8]}"


def remove_left(folder: Path) -> None:
    """Removes a folder that was made for one sky alone, by a command that was killed and could not do it itself."""
    import shutil

    from tradewind.sky.control import SkyControl

    if folder.name.startswith(TEMPORARY) and not SkyControl(str(folder / "control.sock")).is_answered():
        shutil.rmtree(folder, ignore_errors=True)
