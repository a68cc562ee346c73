"""Errors before anything starts name what is missing, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.cli.main import main


def test_a_directory_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["cp", "a", "b"]) == 1
    assert capsys.readouterr().err.startswith("error: the current directory has been removed\nhint: ")


@pytest.mark.parametrize("words", [("cp", "FILE", "FILE-2"), ("ls", "."), ("cat", "FILE")])
def test_a_missing_program_is_named_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    program = tmp_path / "program"
    program.write_text("not a program")
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_GATEWAY", str(program))
    assert main([word.replace("FILE", str(tmp_path / "file")) for word in words]) == 1
    said = capsys.readouterr().err
    assert f"error: {program} cannot be started: Permission denied\nhint: `tradewind doctor`" in said
