"""The state folder: jobs, fleets, skies and the user's part of the catalog lie below it."""

from __future__ import annotations

import os

__all__ = ["STATE_VARIABLE", "state_home"]

STATE_VARIABLE = "TRADEWIND_STATE_DIR"


def state_home(setting: str | None = None) -> str:
    """The setting; without one `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind` (`~/.local/state`).

    Args:
        setting: what flags, environment and configuration say together, where they have been read: the verbs' has.
    """
    folder = setting or os.environ.get(STATE_VARIABLE)
    if not folder:
        folder = os.path.join(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "tradewind")
    return os.path.abspath(os.path.expanduser(folder))
