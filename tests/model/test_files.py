import pytest

from tradewind.model.files import state_home


def test_the_setting_overrides_the_variable_which_overrides_xdg_and_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    monkeypatch.setenv("TRADEWIND_STATE_DIR", "/s")
    assert state_home("/mine") == "/mine"
    assert state_home() == "/s"
    monkeypatch.setenv("TRADEWIND_STATE_DIR", "")
    assert state_home() == state_home("") == "/x/tradewind"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_home() == "/h/.local/state/tradewind"


def test_a_tilde_means_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert state_home("~/state") == "/h/state"
