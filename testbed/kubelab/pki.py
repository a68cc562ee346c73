"""Certificates of a cluster, made with openssl."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

__all__ = ["Pki", "write_kubeconfig"]

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = "30"


class Pki:
    """The CA of a cluster and its certificates, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.ca = folder, folder / "ca.crt"
        usage = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"
        extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", usage)
        subject = ("-days", DAYS, "-subj", "/CN=kubelab-ca")
        _openssl("req", "-x509", *EC, "-keyout", folder / "ca.key", "-out", self.ca, *subject, *extensions)
        #: The keys with which tokens of service accounts are signed and checked.
        self.token_key, self.token_public = folder / "sa.key", folder / "sa.pub"
        _openssl("genrsa", "-out", self.token_key, "2048")
        _openssl("rsa", "-in", self.token_key, "-pubout", "-out", self.token_public)

    def certificate(self, name: str, user: str, group: str = "", names: str = "") -> tuple[Path, Path]:
        """Return the files of a certificate and its key. `names` are its alternative names, as openssl writes them."""
        key, certificate, request = (self.folder / f"{name}.{end}" for end in ("key", "crt", "csr"))
        extensions = self.folder / f"{name}.ext"
        lines = ["extendedKeyUsage=clientAuth,serverAuth", "keyUsage=digitalSignature"]
        lines += [f"subjectAltName={names}"] if names else []
        extensions.write_text("\n".join(lines) + "\n", encoding="utf-8")
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        _openssl("req", "-new", *EC, "-keyout", key, "-out", request, "-subj", subject)
        signed = ("-CA", self.ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", DAYS)
        _openssl("x509", "-req", "-in", request, *signed, "-out", certificate, "-extfile", extensions)
        return certificate, key


def write_kubeconfig(path: Path, entries: list[tuple[str, str, Path, tuple[Path, Path]]]) -> Path:
    """Write a client's configuration with a context per entry: name, URL, CA, and certificate with key."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": entries[0][0],
        "clusters": [
            {"name": name, "cluster": {"server": url, "certificate-authority-data": inline(ca)}}
            for name, url, ca, _ in entries
        ],
        "users": [
            {"name": name, "user": {"client-certificate-data": inline(cert), "client-key-data": inline(key)}}
            for name, _, _, (cert, key) in entries
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name, *_ in entries],
    }
    written = path.with_suffix(".new")
    written.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML.
    written.chmod(0o600)
    written.rename(path)
    return path


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
