"""`plan` between places of the configuration that cannot connect: no such hop, and the reason."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tradewind.cli.main import main

SOURCE, SINK = "aws:us-east-1", "gcp:europe-west4"
PRIVATE_AWS = '[aws]\npublic_address = false\nhome_cidr = "198.51.100.7/32"\n'
PRIVATE_GCP = '[gcp]\nproject = "p-123456"\npublic_address = false\n'


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRADEWIND_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path / "config.toml"


@pytest.mark.slow
def test_a_plan_goes_around_a_hop_that_cannot_connect(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configuration.write_text(PRIVATE_AWS + PRIVATE_GCP)
    assert main(["plan", SOURCE, SINK, "--volume", "100GB", "--json"]) == 0
    routes = [route["regions"] for route in json.loads(capsys.readouterr().out)["routes"]]
    assert routes
    for route in routes:
        for start, end in itertools.pairwise(route):
            assert "azure" in start + end, route
    assert main(["plan", SOURCE, SINK, "--volume", "100GB", "--explain"]) == 0
    said = capsys.readouterr().out
    assert "cannot connect" in said and f"{SOURCE} and {SINK}:" in said and "public_address = false" in said
