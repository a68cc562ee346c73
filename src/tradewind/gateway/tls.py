"""TLS to one gateway of a fleet. A separate module because loading `ssl` takes longer than a short local job."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

__all__ = ["connect_tls"]


def connect_tls(
    address: tuple[str, int], timeout_s: float, identities: Path, own_name: str, peer_name: str
) -> ssl.SSLSocket:
    """Connect as `own_name` to a peer that must have the certificate of `peer_name`, whatever its address.

    `identities` is the folder that `make_identities` made. Raises OSError.
    """
    context = _context(identities, own_name)
    plain = socket.create_connection(address, timeout_s)
    try:
        return context.wrap_socket(plain, server_hostname=peer_name)
    except BaseException:
        plain.close()
        raise


def _context(identities: Path, own_name: str) -> ssl.SSLContext:
    """TLS 1.3 with our certificate, trusting only the fleet's CA, checking the peer's name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(identities / "ca.pem")
    context.load_cert_chain(identities / own_name / "cert.pem", identities / own_name / "key.pem")
    return context
