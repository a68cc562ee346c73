"""The emulated WAN of a job: as it is if it is up, else started for as long as it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tradewind.engine.jobs import JobRecord
    from tradewind.sky.running import Sky

__all__ = ["provider_again", "provider_up", "regions_of_sky", "sky_of"]


@contextmanager
def sky_of(path: str, state_dir: str | None) -> Iterator[Sky]:
    """The sky of a file: as it is if it is up, else for as long as the block lasts. Raises SkyError, SkyFileError."""
    from tradewind.sky.control import SkyControl
    from tradewind.sky.folders import sky_folder
    from tradewind.sky.running import Sky

    file = Path(path)
    folder = sky_folder(state_dir, file)
    if SkyControl(str(folder / "control.sock")).is_answered():
        yield Sky.attach(folder)
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
    """Provide machines again. A sky that is down by now is brought up for the duration of the block.

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
