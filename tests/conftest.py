"""What all tests rely on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Signals as at a terminal: a background job starts with some ignored, and children inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
