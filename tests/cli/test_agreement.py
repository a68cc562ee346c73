"""Rented machines are agreed to before they are rented, also where nobody can be asked."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.cli import transferring
from tradewind.errors import UsageError


def proposal(**changes: Any) -> Any:
    return SimpleNamespace(**{"needs_confirmation": True, "rents_machines": True, "cost_usd": 12.5, **changes})


def test_without_a_terminal_an_expensive_fleet_needs_an_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transferring, "can_ask", lambda: False)
    with pytest.raises(
        UsageError, match=r"this spends \$12.50, and there is no terminal on which to confirm it"
    ) as caught:
        transferring.agree(Namespace(yes=False), proposal())
    assert caught.value.hint == "confirm with -y, or set a ceiling with --max-cost"
    transferring.agree(Namespace(yes=True), proposal())
    transferring.agree(Namespace(yes=False), proposal(needs_confirmation=False))
    transferring.agree(Namespace(yes=False), proposal(rents_machines=False))
