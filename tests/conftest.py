"""What all tests rely on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Signals as at a terminal. Whoever runs the tests may ignore some (`nohup`, a background job); children inherit it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
