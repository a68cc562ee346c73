"""The split proxy that a command's connections go through: its URL, and the token that is never in an argument."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tradewind.errors import UsageError
from tradewind.model.files import open_regular
from tradewind.model.records import dataclass, field

__all__ = ["TOKEN_VARIABLE", "Upstream", "read_upstream"]

#: Variable with the token.
TOKEN_VARIABLE = "TRADEWIND_PROXY_TOKEN"
#: Largest file of a token; a larger one is refused. SOCKS5 carries 255 bytes.
TOKEN_FILE_BYTES_MAX = 4096
LOGIN_BYTES_MAX = 255
#: Way in of the proxy by scheme, as the gateway program names it. Names are always resolved by the proxy.
WAYS = {"socks5": "socks5", "socks5h": "socks5", "http": "connect"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A proxy, its protocol, and the login that it asks for."""

    scheme: str
    address: str
    """`HOST:PORT`."""
    user: str | None
    token: str | None = field(repr=False)

    @property
    def url(self) -> str:
        """The URL without the login."""
        return f"{self.scheme}://{self.address}"

    def document(self) -> Mapping[str, Any]:
        """Return it as the gateway program reads it. It holds the token."""
        login = {"login": {"name": self.user, "token": self.token}} if self.user else {}
        return {"address": self.address, "way": WAYS[self.scheme], **login}


def read_upstream(url: str, token_file: str | None) -> Upstream:
    """Return the proxy of a URL, with the token of the file, or else of the variable TRADEWIND_PROXY_TOKEN.

    Raises UsageError for another URL, for a token in the URL, and for a user without a token.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--through: {error}", hint=_FORM) from None
    if parts.password is not None:
        # The message must not repeat it.
        raise UsageError(
            "--through has a token in its URL, which other users of this machine can see",
            hint=f"write {parts.scheme}://{parts.username}@{host}:{port}, and the token to a file for --token-file",
        )
    if parts.scheme not in WAYS or not host or not port or parts.path not in ("", "/") or parts.query:
        raise UsageError(f"--through {url} is not a proxy", hint=_FORM)
    if parts.username is None and token_file is not None:
        raise UsageError("--token-file needs a user in the URL of --through", hint=_FORM)
    token = _token(token_file) if parts.username else None
    if parts.username and len(parts.username.encode()) > LOGIN_BYTES_MAX:
        raise UsageError(f"--through: the user has more than {LOGIN_BYTES_MAX} bytes")
    return Upstream(parts.scheme, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", parts.username, token)


_FORM = "write socks5h://USER@HOST:PORT or http://USER@HOST:PORT"


def _token(file: str | None) -> str:
    if file is None:
        where, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        try:
            with open(open_regular(file, bytes_max=TOKEN_FILE_BYTES_MAX), encoding="utf-8") as opened:
                where, token = file, opened.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise UsageError(f"--token-file {file}: {reason}") from None
    if not token:
        raise UsageError(
            "the proxy's user has no token" if file is None else f"{where} is empty",
            hint=f"write the token to a file and name it with --token-file, or set {TOKEN_VARIABLE}",
        )
    if len(token.encode()) > LOGIN_BYTES_MAX:
        raise UsageError(f"{where}: the token has more than {LOGIN_BYTES_MAX} bytes")
    return token
