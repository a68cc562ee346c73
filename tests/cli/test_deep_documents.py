"""Documents that are nested too deeply for a parser are refused like any other mistake."""

from pathlib import Path

import pytest

from tradewind.catalog.problem import read_problem
from tradewind.cli.config import Configuration
from tradewind.engine.topology import read_topology
from tradewind.errors import ConfigError, SkyFileError, TopologyError
from tradewind.sky.file import read_sky_file

DEEP = "[" * 200_000


def test_a_deep_topology(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text(DEEP)
    with pytest.raises(TopologyError, match="nested too deeply"):
        read_topology(str(tmp_path / "deep"))


def test_a_deep_problem(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text('{"goal": ' + DEEP)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_problem(tmp_path / "deep")


def test_a_deep_sky_file(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text(DEEP)
    with pytest.raises(SkyFileError, match="nested too deeply"):
        read_sky_file(tmp_path / "deep")


def test_a_deep_configuration(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("concurrency = " + DEEP)
    with pytest.raises(ConfigError, match="nested too deeply"):
        Configuration(str(tmp_path / "deep"))
