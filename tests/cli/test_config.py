import os
from pathlib import Path

import pytest

from tradewind.cli.config import SETTINGS, Configuration, config_path, unknown_variables
from tradewind.errors import ConfigError


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(f"TRADEWIND_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def write(text: str) -> str:
    path = Path(config_path())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_environment_wins_over_profile_over_file_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('limit_rate = "1MB/s"\n[profiles.lab]\nlimit_rate = "2MB/s"\n')
    assert Configuration().value("limit_rate") == 1_000_000
    assert Configuration().origin("limit_rate").place == path
    assert Configuration(profile="lab").value("limit_rate") == 2_000_000
    monkeypatch.setenv("TRADEWIND_PROFILE", "lab")
    assert Configuration().origin("limit_rate").place == "profile lab"
    monkeypatch.setenv("TRADEWIND_LIMIT_RATE", "3MB/s")
    assert Configuration().value("limit_rate") == 3_000_000
    assert Configuration().origin("limit_rate").place == "TRADEWIND_LIMIT_RATE"
    assert Configuration().value("chunk_size") == 16 << 20
    assert Configuration().origin("chunk_size").place == "default"


def test_values_may_be_toml_types() -> None:
    write("compress = true\nconcurrency = 8\nsrc_no_sign = true\n")
    assert Configuration().value("compress") == "auto", "a switch of earlier versions"
    assert Configuration().value("src_no_sign") is True
    assert Configuration().value("concurrency") == 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("limit_rat = 1", "limit_rat"),
        ("limit_rate = [1]", "one value"),
        ("limit_rate = ", "config.toml"),
        ('profile = "gone"', "no profile 'gone'"),
    ],
)
def test_mistakes_in_the_file(text: str, complaint: str) -> None:
    write(text)
    with pytest.raises(ConfigError, match=complaint):
        Configuration()


def test_a_bad_value_names_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_LIMIT_RATE", "fast")
    with pytest.raises(ConfigError, match="TRADEWIND_LIMIT_RATE"):
        Configuration().value("limit_rate")


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--config .*none\.toml: no such file$") as refused:
        Configuration(str(tmp_path / "none.toml"))
    assert refused.value.hint == "leave out --config for the default file, or name a TOML file with settings"


@pytest.mark.parametrize("text", ["[profiles.other]\nlimit_rat = 1", "profiles = 3", "[profiles]\nlab = 1"])
def test_mistakes_in_a_profile_that_is_not_chosen(text: str) -> None:
    write(text)
    with pytest.raises(ConfigError, match="profiles"):
        Configuration()


def test_an_unknown_variable_is_reported_with_the_nearest_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TRADEWIND_")]:
        monkeypatch.delenv(name)
    assert unknown_variables() == []
    monkeypatch.setenv("TRADEWIND_PROFILE", "lab")
    monkeypatch.setenv("TRADEWIND_CHUNKSIZE", "5MiB")
    (line,) = unknown_variables()
    assert line == "warning: TRADEWIND_CHUNKSIZE is not a setting and is ignored; did you mean TRADEWIND_CHUNK_SIZE?"


@pytest.mark.parametrize("name", ["SERVICE_TOKEN", "PROXY_TOKEN", "PROGRAMS", "WAN", "GCP_API_KEY"])
def test_a_variable_that_a_command_reads_itself_is_not_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TRADEWIND_{name}", "x")
    assert [line for line in unknown_variables() if name in line] == []
