"""The image is a layout of the OCI image specification, and equal programs give equal bytes."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from portable.image import write_image
from portable.static import ROOT
from tradewind._version import __version__

VERSION = "1.2.3"


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Path]:
    """Return two programs that differ."""
    made = {processor: tmp_path / processor for processor in ("x86_64", "aarch64")}
    for processor, path in made.items():
        path.write_bytes(f"program for {processor}".encode() * 1000)
    return made


def contents(image: Path) -> dict[str, bytes]:
    """Return all files of an image archive."""
    with tarfile.open(image) as archive:
        files = ((entry.name, archive.extractfile(entry)) for entry in archive)
        return {name: file.read() for name, file in files if file is not None}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return the blob of a descriptor, checked against its digest and size."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    found = files[f"blobs/{algorithm}/{digest}"]
    assert (sha256(found).hexdigest(), len(found)) == (digest, descriptor["size"])
    return found


def test_each_blob_is_named_by_its_digest_and_each_layer_holds_the_program_of_its_processor(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    image = tmp_path / "image.tar"
    digest = write_image(programs, VERSION, image)
    files = contents(image)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads(files["index.json"])["manifests"]
    assert top["digest"] == digest
    assert top["annotations"]["org.opencontainers.image.ref.name"] == f"tradewind-gateway:{VERSION}"
    found = {}
    for entry in json.loads(blob(files, top))["manifests"]:
        manifest = json.loads(blob(files, entry))
        config = json.loads(blob(files, manifest["config"]))
        (layer,) = manifest["layers"]
        plain = gzip.decompress(blob(files, layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{sha256(plain).hexdigest()}"]
        assert config["architecture"] == entry["platform"]["architecture"]
        found[config["architecture"]] = config, plain
    for processor, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        config, plain = found.pop(architecture)
        assert config["config"]["User"] == "65532:65532"
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            program = archive.getmember(config["config"]["Entrypoint"][0].lstrip("/"))
            held = archive.extractfile(program)
            assert held is not None
            assert held.read() == programs[processor].read_bytes()
            assert program.mode == 0o755
            assert archive.getmember("tmp").mode == 0o1777
    assert not found
    assert len([name for name in files if name.startswith("blobs/")]) == 1 + 2 * 3


def test_equal_programs_give_equal_images_and_another_program_another_digest(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    first = write_image(programs, VERSION, tmp_path / "first.tar")
    again = write_image(dict(reversed(programs.items())), VERSION, tmp_path / "again.tar")
    assert again == first
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "first.tar").read_bytes()
    programs["aarch64"].write_bytes(b"changed")
    assert write_image(programs, VERSION, tmp_path / "other.tar") != first


def test_the_version_is_known_where_tradewind_is_not_installed() -> None:
    """As in a new checkout, where `make image` needs nothing but the tools of the build."""
    words = [sys.executable, "-S", "-c", "from portable.image import project_version; print(project_version())"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={})
    assert done.stdout.strip() == __version__, done.stderr
