"""The state folder, with jobs, fleets, skies and the user's part of the catalog; and the folder of config.toml."""

from __future__ import annotations

import os

__all__ = ["STATE_VARIABLE", "config_folder", "state_home"]

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


def config_folder() -> str:
    """`$XDG_CONFIG_HOME/tradewind` (`~/.config`), whether it is there or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "tradewind")
