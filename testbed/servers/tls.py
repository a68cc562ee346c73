"""A private CA and a loopback server certificate, made with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.servers.install import InstallError, require

_NAMES = "IP:127.0.0.1,DNS:localhost"
_EXTENSIONS = """subjectAltName={names}
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
"""


@dataclass(frozen=True)
class Certificates:
    """Absolute paths of PEM files."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, address: str | None = None, name: str | None = None) -> Certificates:
    """Make a CA in ``folder``, and a certificate for 127.0.0.1 and localhost that it signs, valid for two days.

    ``address`` is a further IP address of the server, ``name`` a further name.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca-key.pem"
    made = Certificates(ca, folder / "cert.pem", folder / "key.pem")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    _openssl(
        [
            "req",
            "-x509",
            *new_key,
            "-keyout",
            ca_key,
            "-out",
            ca,
            "-days",
            "2",
            "-subj",
            "/CN=Testbed CA",
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign",
        ]
    )
    names = [_NAMES, *([] if address is None else [f"IP:{address}"]), *([] if name is None else [f"DNS:{name}"])]
    request, extensions = folder / "request.pem", folder / "extensions.cnf"
    _openssl(["req", *new_key, "-keyout", made.key, "-out", request, "-subj", "/CN=127.0.0.1"])
    extensions.write_text(_EXTENSIONS.format(names=",".join(names)))
    _openssl(
        [
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            ca,
            "-CAkey",
            ca_key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extensions,
            "-out",
            made.certificate,
        ]
    )
    return made


def _openssl(arguments: list[str | Path]) -> None:
    done = subprocess.run([require("openssl"), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise InstallError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
