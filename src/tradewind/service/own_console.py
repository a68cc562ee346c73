"""A user's own console: how a browser is signed in without a token that people handle.

The address that signs in has a code in its fragment, which browsers do not send. The page exchanges it for a token of
this server, which only that browser tab keeps. A code is valid once and for minutes, a token until the server ends.

Other users of the machine must not learn a code. They can see the arguments of processes, so a browser is opened with
the name of a file that only this user can read; the file leads to the address. The address is printed for the user,
unless the output is a file that others can read.
"""

from __future__ import annotations

import html
import json
import os
import secrets
import threading
import time
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from sqlalchemy import delete, insert

from tradewind.service.auth import FIRST_TENANT, SCOPES_OF_ROLE, new_token, token_digest
from tradewind.service.database import ServiceDatabase, database_clock_ms, record_change
from tradewind.service.invitation import ADDRESS_FILE, Invitation
from tradewind.service.limits import CODE_S, CODES_MAX
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import tokens

__all__ = ["OwnConsole"]

#: Names of the files that lead a browser to the address.
PAGES = "open-*.html"
#: Ids of the tokens of browsers begin so.
BROWSER_PREFIX = "browser-"
ROLE = "operator"
CODE_BYTES = 32
PAGE = """\
<!doctype html>
<html lang="en">
<title>Tradewind</title>
<meta http-equiv="refresh" content="0; url={address}">
<p><a href="{address}">Open the console</a></p>
"""


class OwnConsole:
    """The sign-in of one server at `address`. Use it as a context. Any thread may use it.

    The browsers of an earlier server are signed out: their tokens are removed.
    """

    def __init__(self, settings: ServiceSettings, database: ServiceDatabase, address: str) -> None:
        self.address = address
        self._folder, self._database = settings.state, database
        self._lock = threading.Lock()
        #: Digest of each unused code, with its expiry by the monotonic clock [s] and its file, oldest first.
        self._codes: dict[str, tuple[float, Path | None]] = {}

    def __enter__(self) -> OwnConsole:
        self._clear()
        _write(self._folder / ADDRESS_FILE, self.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        for path in (self._folder / ADDRESS_FILE, *self._folder.glob(PAGES)):
            path.unlink(missing_ok=True)
        with self._database.write() as connection:
            connection.execute(delete(tokens).where(tokens.c.id.startswith(BROWSER_PREFIX)))

    def invite(self) -> Invitation:
        """Return two new codes: one in an address, the other in a file that leads to it. Raises OSError."""
        page = self._folder / f"open-{secrets.token_hex(8)}.html"
        _write(page, PAGE.format(address=html.escape(self._new_address(page))))
        return Invitation(self._new_address(None), str(page))

    def _new_address(self, page: Path | None) -> str:
        code = secrets.token_urlsafe(CODE_BYTES)
        with self._lock:
            self._codes[_digest(code)] = (time.monotonic() + CODE_S, page)
            while len(self._codes) > CODES_MAX:
                self._forget(next(iter(self._codes)))
        return f"{self.address}/#code={code}"

    def exchange(self, code: str) -> str | None:
        """Return a new token for a code, which is then used; None for one that is unknown, used or expired."""
        with self._lock:
            expiry_s = self._forget(_digest(code))
        if expiry_s is None or expiry_s < time.monotonic():
            return None
        token, token_id = new_token(), BROWSER_PREFIX + secrets.token_hex(8)
        with self._database.write() as connection:
            connection.execute(
                insert(tokens).values(
                    id=token_id,
                    tenant=FIRST_TENANT,
                    name="browser",
                    digest=token_digest(token),
                    role=ROLE,
                    scopes=json.dumps(sorted(SCOPES_OF_ROLE[ROLE])),
                    created_unix_ms=database_clock_ms(connection),
                )
            )
            record_change(connection, FIRST_TENANT, token_id, "browser.sign-in", token_id)
        return token

    def _forget(self, digest: str) -> float | None:
        """Remove a code and its file; return its expiry, or None if it is unknown."""
        expiry_s, page = self._codes.pop(digest, (None, None))
        if page is not None:
            page.unlink(missing_ok=True)
        return expiry_s


def _digest(code: str) -> str:
    return sha256(code.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Write a new file for this user only. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
