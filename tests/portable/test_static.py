"""The static program runs where there is nothing else, and trusts the right certificates there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from portable.image import write_image
from portable.static import PROGRAM, ROOT
from tradewind.model.program import CONTRACT_VERSION

#: The program of this machine's processor.
BUILT = ROOT / "dist" / f"{PROGRAM}-{os.uname().machine}"
WAIT_S = 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BUILT.exists(), reason=f"dist/{BUILT.name} is missing; run make static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root"),
]


#: The program that changes the root folder and the user.
CHROOT = shutil.which("chroot") or "chroot"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root folder that holds nothing but the program."""
    folder = tmp_path / "root"
    folder.mkdir()
    shutil.copy(BUILT, folder / PROGRAM)
    return folder


def run(root: Path, *words: str, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program in the root folder, with these environment variables alone."""
    command = [CHROOT, str(root), f"/{PROGRAM}", *words]
    return subprocess.run(command, input=text, env=variables, capture_output=True, text=True, timeout=WAIT_S)


def openssl(*words: str | Path) -> None:
    """Run openssl."""
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Server:
    """An HTTPS server that refuses each request with 403, and counts those that came through TLS."""

    def __init__(self, folder: Path) -> None:
        self.authority, key, certificate = folder / "ca.pem", folder / "key.pem", folder / "cert.pem"
        new = (
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=test",
            "-x509",
        )
        openssl(*new, "-keyout", folder / "ca.key", "-out", self.authority)
        signed = ("-CA", self.authority, "-CAkey", folder / "ca.key", "-addext", "basicConstraints=critical,CA:FALSE")
        openssl(*new, *signed, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.requests = 0
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            plain, _ = self.listener.accept()
            with plain:
                plain.settimeout(WAIT_S)
                if plain.recv(1, socket.MSG_PEEK) == b"":
                    return
                try:
                    with self.context.wrap_socket(plain, server_side=True) as secure:
                        if secure.recv(65536):
                            self.requests += 1
                            secure.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                except OSError:
                    continue  # The client did not trust us.

    def close(self) -> None:
        """End the server: a connection that says nothing ends its thread."""
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.thread.join()
        self.listener.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Return a server whose certificate is of an authority of its own."""
    made = Server(tmp_path)
    yield made
    made.close()


def listing(server: Server) -> str:
    """Return the task that lists a bucket of the server."""
    endpoint = f"https://127.0.0.1:{server.port}"
    store = {"url": "s3://bucket", "endpoint": endpoint, "region": "us-east-1", "path_style": True}
    return json.dumps(
        {
            "contract": CONTRACT_VERSION,
            "task": "ls",
            "store": store,
            "prefix": "",
            "recursive": True,
            "long": False,
            "json": False,
        }
    )


KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


def test_it_starts_without_any_other_file(root: Path) -> None:
    done = run(root, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PROGRAM)


def test_it_starts_in_the_unpacked_image_as_its_user(tmp_path: Path) -> None:
    image, unpacked = tmp_path / "image.tar", tmp_path / "unpacked"
    write_image({os.uname().machine: BUILT}, "1.2.3", image)
    with tarfile.open(image) as archive:
        archive.extractall(tmp_path, filter="tar")
    blobs = tmp_path / "blobs" / "sha256"

    def blob(descriptor: dict[str, str]) -> Path:
        return blobs / descriptor["digest"].removeprefix("sha256:")

    (index,) = json.loads((tmp_path / "index.json").read_text())["manifests"]
    (entry,) = json.loads(blob(index).read_text())["manifests"]
    manifest = json.loads(blob(entry).read_text())
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        layer.extractall(unpacked, filter="tar")
    config = json.loads(blob(manifest["config"]).read_text())["config"]
    command = [CHROOT, f"--userspec={config['User']}", str(unpacked), *config["Entrypoint"], "--version"]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PROGRAM)


def test_it_trusts_the_authorities_of_ssl_cert_file(root: Path, server: Server) -> None:
    shutil.copy(server.authority, root / "ca.pem")
    done = run(root, "task", text=listing(server), SSL_CERT_FILE="/ca.pem", **KEYS)
    assert server.requests > 0, done.stdout + done.stderr


def test_with_its_own_authorities_it_refuses_a_server_of_another(root: Path, server: Server) -> None:
    done = run(root, "task", text=listing(server), **KEYS)
    assert server.requests == 0
    assert done.returncode != 0
    assert "certificate" in done.stdout + done.stderr
