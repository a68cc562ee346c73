"""An OCI image of the gateway, made without a daemon.

`python -m portable.image` packs the static programs of `dist/` into `dist/tradewind-gateway.oci.tar`, an image layout
of the OCI image specification 1.0 with one manifest for each processor that has a program. The image is FROM scratch:
it holds the program and an empty `/tmp`. The program brings its own CA certificates. Equal programs give equal bytes:
no time or user is recorded.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from runpy import run_path
from typing import Any

from portable.static import PROCESSORS, PROGRAM, ROOT
from portable.toolchain import BuildError

__all__ = ["ARCHITECTURES", "project_version", "write_image"]

#: The names of Go, which OCI uses, by processor.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: The user that images without users run as, by convention of distroless images.
USER = 65532
IMAGE = "tradewind-gateway.oci.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class _Blobs:
    """The contents of an image by their SHA-256."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, media_type: str, content: bytes) -> dict[str, Any]:
        """Add a blob and return its descriptor."""
        digest = sha256(content).hexdigest()
        self.content[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def write_image(programs: dict[str, Path], version: str, path: Path) -> str:
    """Write an image of programs by processor, and return the digest of its index, `sha256:…`."""
    blobs = _Blobs()
    manifests = []
    for processor in sorted(programs):
        architecture = ARCHITECTURES[processor]
        manifest = _manifest(blobs, programs[processor].read_bytes(), architecture, version)
        manifests.append(manifest | {"platform": {"architecture": architecture, "os": "linux"}})
    index = blobs.add(INDEX, _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    named = index | {"annotations": {"org.opencontainers.image.ref.name": f"{PROGRAM}:{version}"}}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}),
    }
    files |= {f"blobs/sha256/{digest}": content for digest, content in sorted(blobs.content.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("blobs", "blobs/sha256"):
            archive.addfile(_directory(name, 0o755))
        for name, content in files.items():
            archive.addfile(_file(name, content, 0o644), io.BytesIO(content))
    partial.replace(path)
    return str(index["digest"])


def _manifest(blobs: _Blobs, program: bytes, architecture: str, version: str) -> dict[str, Any]:
    layer = _layer(program)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": [f"/{PROGRAM}"],
            "WorkingDir": "/tmp",
            "Labels": {"org.opencontainers.image.title": PROGRAM, "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add(CONFIG, _json(config)),
        "layers": [blobs.add(LAYER, gzip.compress(layer, mtime=0))],
    }
    return blobs.add(MANIFEST, _json(manifest))


def _layer(program: bytes) -> bytes:
    """Return the tar archive of an image's files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(_directory("tmp", 0o1777))
        archive.addfile(_file(PROGRAM, program, 0o755), io.BytesIO(program))
    return buffer.getvalue()


def _file(name: str, content: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    return entry


def _directory(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return entry


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def project_version() -> str:
    """Return Tradewind's version, for which it need not be installed."""
    return str(run_path(str(ROOT / "src" / "tradewind" / "_version.py"))["__version__"])


def main() -> int:
    """Write the image of the programs in `dist/`."""
    dist = ROOT / "dist"
    wanted = {processor: dist / f"{PROGRAM}-{processor}" for processor in PROCESSORS}
    programs = {processor: path for processor, path in wanted.items() if path.exists()}
    try:
        if not programs:
            raise BuildError("dist/ has no program", "run make static")
        digest = write_image(programs, project_version(), dist / IMAGE)
    except BuildError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 1
    print(f"dist/{IMAGE}  {' and '.join(programs)}  {(dist / IMAGE).stat().st_size / 1e6:.1f} MB  {digest}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
