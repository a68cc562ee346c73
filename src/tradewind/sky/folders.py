"""Folders of running skies: one each in `skies` of the state folder."""

from __future__ import annotations

from pathlib import Path

from tradewind.model.files import state_home

__all__ = ["TEMPORARY", "remove_left", "skies_folder", "sky_folder"]

#: Prefix of temporary folders that belong to a single sky.
TEMPORARY = "tw-sky-"


def skies_folder(state_dir: str | None) -> Path:
    """Return the folder of all skies in the state folder, which the setting `state_dir` names."""
    return Path(state_home(state_dir), "skies")


def sky_folder(state_dir: str | None, file: Path) -> Path:
    """Return the folder with the socket and log of this file's sky: the same for all spellings of the file's path."""
    from hashlib import sha256

    place = str(file.resolve())
    return skies_folder(state_dir) / f"{file.stem[:20]}-{sha256(place.encode()).hexdigest()[:8]}"


def remove_left(folder: Path) -> None:
    """Remove the temporary folder of a sky whose command was killed before it could remove it."""
    import shutil

    from tradewind.sky.control import SkyControl

    if folder.name.startswith(TEMPORARY) and not SkyControl(str(folder / "control.sock")).is_answered():
        shutil.rmtree(folder, ignore_errors=True)
