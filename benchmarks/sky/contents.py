"""Files of four kinds, as compressors meet them: text, columnar data, images and random bytes."""

from __future__ import annotations

import io
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np

#: Length of a file; the last one of a kind may be shorter.
FILE_BYTES = 4_000_000
#: Number of different files of a kind; further ones are copies. No chunk holds parts of two.
DIFFERENT = 4


def text(number: int) -> bytes:
    """Return Python's standard library, from one of its files on."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    start = number * len(sources) // DIFFERENT
    whole = bytearray()
    for source in islice(cycle(sources), start, None):
        whole += source.read_bytes()
        if len(whole) >= FILE_BYTES:
            break
    return bytes(whole[:FILE_BYTES])


def columnar(number: int) -> bytes:
    """Return a Parquet file as pyarrow writes it: dictionaries, and pages compressed with Snappy."""
    import pyarrow
    from pyarrow import parquet

    made = np.random.default_rng(number)
    rows = 250_000
    columns = {
        "time_ms": 1_700_000_000_000 + np.cumsum(made.integers(1, 400, rows)),
        "station": np.char.add("station-", made.zipf(1.4, rows).clip(max=500).astype(str)),
        "celsius": np.round(np.cumsum(made.normal(0, 0.05, rows)) + 12, 2),
        "humidity": made.integers(20, 100, rows).astype(np.int16),
        "battery": np.round(made.uniform(3.1, 4.2, rows), 2),
        "charging": made.random(rows) < 0.1,
    }
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def image(number: int) -> bytes:
    """Return a JPEG of shapes, a gradient and a camera's noise, at quality 85."""
    from PIL import Image

    made = np.random.default_rng(number)
    height, width = 1350, 1800
    down, across = np.mgrid[0:height, 0:width]
    light = 90 + 60 * np.sin(across / 240 + number) + 40 * np.cos(down / 170)
    light[(down // 300 + across // 400) % 3 == 0] += 25
    colours = [light * part for part in (1.0, 0.9, 0.75)]
    pixels = np.stack(colours, axis=2) + made.normal(0, 9, (height, width, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def noise(number: int) -> bytes:
    """Return random bytes."""
    return np.random.default_rng(number).bytes(FILE_BYTES)


KINDS: dict[str, Callable[[int], bytes]] = {"text": text, "columnar": columnar, "image": image, "random": noise}


def write_kind(folder: Path, kind: str, volume_bytes: int) -> Path:
    """Write files of a kind to a new folder, at least `volume_bytes` in all."""
    folder.mkdir(parents=True)
    different = min(DIFFERENT, -(-volume_bytes // FILE_BYTES))
    written = []
    for number in range(different):
        written.append(folder / f"{number:04}")
        written[-1].write_bytes(KINDS[kind](number))
    left_bytes = volume_bytes - sum(path.stat().st_size for path in written)
    for number, path in enumerate(_again(written, left_bytes), different):
        shutil.copyfile(path, folder / f"{number:04}")
    return folder


def _again(paths: list[Path], left_bytes: int) -> Iterator[Path]:
    """Yield paths in turn until they have so many bytes."""
    for path in cycle(paths):
        if left_bytes <= 0:
            return
        left_bytes -= path.stat().st_size
        yield path
