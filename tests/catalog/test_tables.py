"""Quotas of the account and rates of object stores: imported, shown with their origin, and kept like prices."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.catalog import tables
from tradewind.catalog.load import load_catalog
from tradewind.catalog.user_files import Imported, import_table
from tradewind.cli.main import main
from tradewind.errors import ConfigError
from tradewind.model.region import Region

VIRGINIA = Region("aws", "us-east-1")


def imported(folder: Path, text: str, date: str = "2026-11-01", *, new_regions: bool = False) -> Imported:
    table = folder / "table.csv"
    table.write_text(text)
    return import_table(table, folder / "catalog", date=date, source="the console", new_regions=new_regions)


def test_quotas_are_imported_and_the_newer_one_wins(tmp_path: Path) -> None:
    assert str(imported(tmp_path, "region,machines\naws:us-east-1,3\naws:us-east-2,1\n")) == "2 quotas"
    done = imported(tmp_path, "region,machines\naws:us-east-1,9\n", "2026-10-01")
    assert done.stayed == ("aws:us-east-1 stays 3 machines of 2026-11-01",)
    catalog = load_catalog(tmp_path / "catalog")
    assert catalog.quotas == {VIRGINIA: 3, Region("aws", "us-east-2"): 1}
    assert str(catalog.quota_origins[VIRGINIA]) == "imported, the console, 2026-11-01"


def test_imported_rates_of_a_store_keep_its_packaged_prices(tmp_path: Path) -> None:
    assert str(imported(tmp_path, "provider,write_gbps\ngcp,2.5\n")) == "1 store"
    store, packaged = load_catalog(tmp_path / "catalog").stores["gcp"], load_catalog().stores["gcp"]
    assert (store.read_gbps, store.write_gbps) == (float("inf"), 2.5)
    assert store.rate_origin is not None and store.rate_origin.source == "the console"
    assert (store.put_usd_per_1000, store.origin) == (packaged.put_usd_per_1000, packaged.origin)
    imported(tmp_path, "provider,read_gbps,get_usd_per_1000,put_usd_per_1000\nsite,40,0,0.001\n")
    stores = load_catalog(tmp_path / "catalog").stores
    assert stores["gcp"] == store
    assert (stores["site"].read_gbps, stores["site"].put_usd_per_1000) == (40.0, 0.001)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("region,machines\naws:us-east-1,2.5\n", "line 2, column machines: 2.5 is not a whole number"),
        ("region,machines\naws:us-east-1,-1\n", "line 2, column machines: -1 is not between 0"),
        ("region,machines\naws:us-eest-1,1\n", "line 2, column region: unknown region aws:us-eest-1"),
        (
            "region,machines\naws:us-east-1,1\naws:us-east-1,2\n",
            "line 3, column region: aws:us-east-1 is already in line",
        ),
        ("provider,read_gbps\ngpc,2\n", "line 2, column provider: unknown provider gpc"),
        ("provider,read_gbps\ngcp,0\n", "line 2, column read_gbps: 0 is not between 0.001"),
        ("provider,read_gbps\ngcp,\n", "line 2, column read_gbps: is missing"),
        ("provider,get_usd_per_1000\ngcp,0.1\n", "line 2, column put_usd_per_1000: is missing"),
        ("provider,read_gbps\ngcp,2\nGCP,3\n", "line 3, column provider: GCP is already in line 2"),
    ],
)
def test_an_error_in_a_table_is_located_and_nothing_is_imported(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        imported(tmp_path, text)
    assert f"{tmp_path / 'table.csv'}: {words}" in str(raised.value)
    assert not (tmp_path / "catalog").exists()


def shown(capsys: pytest.CaptureFixture[str], region: str) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["catalog", "show", region, "--json"]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return {line["figure"]: line for line in lines}


def test_show_prints_limits_with_their_origin_or_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    figures = shown(capsys, "aws:us-east-1")
    assert (figures["quota"]["value"], figures["quota"]["origin"]) == (None, None)
    assert (figures["store, per machine"]["value"], figures["store, per machine"]["origin"]) == ({}, None)
    imported(tmp_path, "region,machines\naws:us-east-1,1\n")
    imported(tmp_path, "provider,read_gbps\naws,2.5\n")
    figures = shown(capsys, "aws:us-east-1")
    assert (figures["quota"]["value"], figures["quota"]["origin"]["source"]) == (1, "the console")
    assert figures["store, per machine"]["value"] == {"read": 2.5}
    assert figures["store, per machine"]["origin"]["layer"] == "imported"
    assert figures["store, per 1000 requests"]["origin"]["layer"] == "published"
    assert main(["catalog", "show", "aws:us-east-1"]) == 0
    text = capsys.readouterr().out
    assert "1 machine at most" in text
    assert "read 2.5 Gbit/s" in text


def test_show_prints_the_age_of_prices_and_the_users_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    assert main(["catalog", "show"]) == 0
    *_, prices, yours, hint = capsys.readouterr().out.splitlines()
    assert prices.startswith("prices  packaged, dated 2022-11-28 to 2026-")
    assert yours == f"yours   {tmp_path / 'catalog'}: nothing yet"
    assert "shows the source and age of each figure" in hint
    imported(tmp_path, "region,machines\naws:us-east-1,1\n")
    imported(tmp_path, "provider,read_gbps\naws,2.5\n")
    assert main(["catalog", "show"]) == 0
    assert f"yours   {tmp_path / 'catalog'}: quotas.csv, stores.csv\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("days", "words"),
    [(0, "today"), (1, "1 day old"), (59, "59 days old"), (60, "2 months old"), (730, "2 years old")],
)
def test_show_prints_the_age_of_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], days: int, words: str
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    date = (tables.present().date() - datetime.timedelta(days=days)).isoformat()
    imported(tmp_path, "region,machines\naws:us-east-1,1\n", date)
    assert shown(capsys, "aws:us-east-1")["quota"]["origin"]["age_days"] == days
    assert main(["catalog", "show", "aws:us-east-1"]) == 0
    assert f"imported, the console, {date} ({words})" in capsys.readouterr().out
