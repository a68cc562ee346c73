"""Rented machines are agreed to before they are rented, also where nobody can be asked."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.cli import transferring
from tradewind.cli.main import main
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Proposal
from tradewind.errors import FleetTaken, UsageError
from tradewind.fleet.journal import TAKEN_HINT


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


def test_a_transfer_whose_warm_fleet_was_taken_is_planned_and_agreed_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is rented without a further question, and a fleet that is taken again and again ends the command."""
    (tmp_path / "data").write_text("content")
    words = ["cp", str(tmp_path / "data"), str(tmp_path / "copy")]
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    start, left, agreed = Engine.start, [1], list[str]()

    def started(engine: Engine, proposal: Proposal, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            proposal.drop()
            raise FleetTaken("warm fleet one is in use or has ended", hint=TAKEN_HINT)
        return start(engine, proposal, **options)

    monkeypatch.setattr(Engine, "start", started)
    monkeypatch.setattr(transferring, "agree", lambda _, made: agreed.append(made.id))
    assert main(words) == 0
    assert "note: warm fleet one is in use or has ended; planning again" in capsys.readouterr().err
    assert len(set(agreed)) == 2 and (tmp_path / "copy").read_text() == "content"
    left[0] = 3
    assert main(words) == 1
    assert "error: warm fleet one is in use or has ended" in capsys.readouterr().err
    assert len(set(agreed)) == 5
