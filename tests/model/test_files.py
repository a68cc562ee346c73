import os
from pathlib import Path

import pytest

from tradewind.errors import ConfigError
from tradewind.model.files import private_folder, state_folder, state_home


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


@pytest.mark.parametrize("place", ["/proc/none/state", "file/state", "file"])
def test_a_folder_that_cannot_be_made_names_the_variable(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    for make in (state_folder, private_folder):
        with pytest.raises(ConfigError, match="cannot be made: ") as caught:
            make(tmp_path / place)
        assert "TRADEWIND_STATE_DIR" in str(caught.value.hint)


def test_a_folder_below_one_of_somebody_else_names_the_variable(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look into all folders")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(ConfigError, match="cannot be made: Permission denied"):
        state_folder(tmp_path / "closed" / "state")
