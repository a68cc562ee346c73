"""Container images as tar files, written without a daemon or registry.

An image is both an OCI layout and what `docker load` accepts: `ctr images import`, `podman load` and `skopeo` take it,
too. It has one layer and no timestamps, so the same files make the same image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

__all__ = ["gateway_image", "write_image"]

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
#: User of the programs of an image: nobody.
USER = "65534:65534"


def write_image(path: Path, name: str, files: Mapping[str, Path]) -> None:
    """Write an image of these files, by their paths in the image. The first one is its program.

    `name` is the image's name with its tag.
    """
    layer = _layer(files)
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Entrypoint": [next(iter(files))], "Env": ["PATH=/"], "WorkingDir": "/", "User": USER},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_blob = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, config_blob),
        "layers": [_descriptor(LAYER_TYPE, layer)],
    }
    manifest_blob = _json(manifest)
    notes = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**_descriptor(MANIFEST_TYPE, manifest_blob), "annotations": notes}]}
    docker = [{"Config": _blob_path(config_blob), "RepoTags": [name], "Layers": [_blob_path(layer)]}]
    members = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": _json(index),
        "manifest.json": _json(docker),
        **{_blob_path(blob): blob for blob in (layer, config_blob, manifest_blob)},
    }
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for member, content in sorted(members.items()):
            _add(tar, member, content)


def gateway_image(path: Path, name: str, binary: Path) -> None:
    """Write the image of a gateway FROM scratch: the program, and the libraries that it loads if it is not static.

    The machine's CA certificates are included, where it has them, for stores with TLS.
    """
    files = {"/tradewind-gateway": binary}
    linked = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
    if linked.returncode == 0:
        paths = (word for line in linked.stdout.splitlines() for word in line.split() if word.startswith("/"))
        files.update({library: Path(library) for library in paths})
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        files[str(certificates)] = certificates
    write_image(path, name, files)


def _layer(files: Mapping[str, Path]) -> bytes:
    held = io.BytesIO()
    folders: set[str] = set()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for target, source in files.items():
            inside = PurePosixPath(target).relative_to("/")
            for folder in reversed(inside.parents[:-1]):
                if str(folder) not in folders:
                    folders.add(str(folder))
                    _add(tar, str(folder), b"", 0o755, tarfile.DIRTYPE)
            _add(tar, str(inside), source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
    return held.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644, kind: bytes = tarfile.REGTYPE) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type = len(content), mode, kind
    tar.addfile(entry, io.BytesIO(content))


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _blob_path(blob: bytes) -> str:
    return f"blobs/{_digest(blob).replace(':', '/')}"
