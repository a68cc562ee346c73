"""Invitations that sign a browser in to a user's own console: asked of the running console, printed, and opened.

It imports little, because a second `tradewind console` only asks the first one.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.errors import StateError
from tradewind.model.locks import is_locked
from tradewind.model.records import dataclass
from tradewind.service.settings import ADMIN_FILE, LOCK_FILE

__all__ = ["ADDRESS_FILE", "Invitation", "running_console", "show"]

#: File with the address of the running console.
ADDRESS_FILE = "address"
#: Time for a running console to answer, and to write its address after its lock.
ANSWER_S = 10.0
START_S = 10.0
LOOK_S = 0.05


@dataclass(frozen=True)
class Invitation:
    """Ways to sign one browser in: an address for people, and the path of a file that leads a browser to another."""

    address: str
    page: str


def running_console(state: Path) -> Invitation | None:
    """Return an invitation of the user's running console; None if none runs. Raises StateError."""
    deadline_s = time.monotonic() + START_S
    while is_locked(state / LOCK_FILE):
        with suppress(FileNotFoundError, ConnectionRefusedError):
            address = (state / ADDRESS_FILE).read_text(encoding="utf-8").strip()
            return _invited(address, (state / ADMIN_FILE).read_text(encoding="utf-8").strip())
        if time.monotonic() > deadline_s:
            raise StateError(f"the console that uses {state} does not answer", hint="stop it, and try again")
        time.sleep(LOOK_S)
    return None


def _invited(address: str, token: str) -> Invitation:
    """Ask a running console. Its lock is held, so the port is its own. Raises ConnectionRefusedError, StateError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{address}/v1/console/invitations", method="POST", headers=headers)
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            document: dict[str, Any] = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
            raise ConnectionRefusedError(address) from None  # It has just begun, or is about to end.
        raise StateError(f"the console at {address} does not answer: {error}") from None
    return Invitation(document["address"], document["page"])


def show(invitation: Invitation, *, with_browser: bool) -> None:
    """Print the address that signs in, and open the browser."""
    if _others_can_read(sys.stdout.fileno()):
        print("open the console with `tradewind console` in a terminal: other users can read this file", flush=True)
    else:
        print(f"open {invitation.address}", flush=True)
    if with_browser and _has_screen():
        import webbrowser

        page = Path(invitation.page).as_uri()
        # Some browsers block until they end.
        thread = threading.Thread(target=webbrowser.open, args=(page,), name="browser", daemon=True)
        thread.start()
        thread.join(LOOK_S)


def _others_can_read(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _has_screen() -> bool:
    """Return whether a browser can show a page. Elsewhere it would be one in this terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
