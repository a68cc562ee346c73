"""Start, find, change and end skies, and start the sky of a job for as long as the job needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import SkyError, SkyFileError

if TYPE_CHECKING:
    from tradewind.engine.jobs import JobRecord
    from tradewind.sky.running import Sky

__all__ = [
    "change_sky",
    "provider_again",
    "provider_up",
    "regions_of_sky",
    "running_sky",
    "sky_of",
    "start_sky",
    "why_no_sky",
]


def start_sky(path: str, state_dir: str | None, *, detached: bool) -> Sky:
    """Start the sky of a file; a detached sky runs until it is ended. Raises SkyError, SkyFileError."""
    from tradewind.sky.folders import sky_folder
    from tradewind.sky.running import Sky

    file = Path(path)
    return Sky.up(file, folder=sky_folder(state_dir, file), detached=detached)


def running_sky(path: str, state_dir: str | None) -> Sky:
    """Return the sky of a file. Raises SkyFileError without such a file, SkyError if the sky is not running."""
    sky = _attached(Path(path), state_dir)
    if sky is None and not os.path.exists(path):
        raise SkyFileError(f"{path}: No such file or directory", hint="the format: docs/reference/sky.md")
    if sky is None:
        raise SkyError(f"the sky of {path} is not running", hint=f"`tradewind sky up {path}`")
    return sky


def change_sky(sky: Sky, words: Sequence[str]) -> None:
    """Change a running sky, as `tradewind sky set` describes. Raises UsageError, SkyError."""
    from tradewind.sky.change import apply_change

    apply_change(sky, list(words))


def why_no_sky() -> str | None:
    """Return the emulator's reason why no sky can run here, or None if one can. Tries a sky of one machine."""
    from tradewind.sky.file import network_from_document
    from tradewind.sky.running import Sky, find_emulator

    try:
        find_emulator()
        with Sky.up(network_from_document({"regions": {"site:here": {}}}, Path())):
            return None
    except SkyError as error:
        return str(error)


def _attached(file: Path, state_dir: str | None) -> Sky | None:
    from tradewind.sky.control import SkyControl
    from tradewind.sky.folders import sky_folder
    from tradewind.sky.running import Sky

    folder = sky_folder(state_dir, file)
    # A crashed sky leaves a socket at which no process listens.
    return Sky.attach(folder) if SkyControl(str(folder / "control.sock")).is_answered() else None


@contextmanager
def sky_of(path: str, state_dir: str | None) -> Iterator[Sky]:
    """Yield the sky of a file. If it is not running, it is started for the duration of the block. Raises SkyError,
    SkyFileError.
    """
    from tradewind.sky.running import Sky

    file = Path(path)
    running = _attached(file, state_dir)
    if running is not None:
        yield running
        return
    with Sky.up(file) as sky:
        yield sky


def regions_of_sky(path: str) -> list[str]:
    """Return the regions in which a sky file has machines. Raises SkyFileError."""
    from tradewind.sky.file import read_sky_file

    return sorted({str(machine.region) for machine in read_sky_file(path).machines})


def provider_again(record: JobRecord, state_dir: str | None) -> AbstractContextManager[Mapping[str, Any] | None]:
    """Provide the machines of a resumed job; see `provider_up`."""
    return provider_up(record.document.get("provider"), state_dir)


@contextmanager
def provider_up(provider: Mapping[str, Any] | None, state_dir: str | None) -> Iterator[Mapping[str, Any] | None]:
    """Provide machines again. A sky that is not running is started for the duration of the block.

    Raises SkyError, SkyFileError.
    """
    from tradewind.sky.control import SkyControl
    from tradewind.sky.folders import remove_left

    up = provider is not None and "sky" in provider and SkyControl(f"{provider['sky']}/control.sock").is_answered()
    if provider is None or "file" not in provider or up:
        yield provider
        return
    with sky_of(provider["file"], state_dir) as sky:
        remove_left(Path(provider["sky"]))
        yield {**provider, "sky": str(sky.folder)}
