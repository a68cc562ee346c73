"""What a user takes in and reads back: imports whole or not at all, and `show` that says where a figure is from."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.catalog.learned import Sample, store_samples
from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.user_files import import_table
from tradewind.cli.main import main
from tradewind.errors import ConfigError
from tradewind.model.price import PriceTier
from tradewind.model.region import Region

TODAY = datetime.date(2026, 11, 21)
VIRGINIA, EEMSHAVEN = Region("aws", "us-east-1"), Region("gcp", "europe-west4")


def imported(tmp_path: Path, text: str) -> Path:
    table = tmp_path / "table.csv"
    table.write_text(text)
    import_table(table, tmp_path / "catalog", date="2026-11-21")
    return tmp_path / "catalog"


def test_prices_may_have_tiers(tmp_path: Path) -> None:
    text = "src,dst,usd_per_gb,source\naws:us-east-1,gcp:europe-west4,0:0.05;10240:0.04,contract 7\n"
    price = load_catalog(imported(tmp_path, text), today=TODAY).egress(VIRGINIA, EEMSHAVEN)
    assert price is not None
    assert price.tiers == (PriceTier(0, 0.05), PriceTier(10240, 0.04))
    assert (price.origin.kind, price.origin.source, price.origin.date) == ("imported", "contract 7", "2026-11-21")


def test_machine_prices_of_a_region_can_be_imported(tmp_path: Path) -> None:
    text = "region,type,usd_per_hour,spot\naws:us-east-1,m5.8xlarge,1.1,no\naws:us-east-1,m5.8xlarge,0.3,yes\n"
    catalog = load_catalog(imported(tmp_path, text), today=TODAY)
    offers = {offer.name: offer for offer in catalog.machine_offers(VIRGINIA)}
    assert [offers[name].usd_per_hour for name in ("m5.8xlarge", "m5.8xlarge (spot)")] == [1.1, 0.3]
    assert offers["m5.xlarge"].origin.kind == "published"
    assert catalog.machine_offers(Region("aws", "us-east-2"))[0].usd_per_hour == 1.536


def test_lines_above_the_header_are_skipped_and_counted(tmp_path: Path) -> None:
    text = "# measured at night\n# by hand\nsrc,dst,gbps\naws:us-east-1,gcp:europe-west4,3.5\n"
    link = load_catalog(imported(tmp_path, text), today=TODAY).grid.link(VIRGINIA, EEMSHAVEN)
    assert link is not None
    assert link.gbps == 3.5
    with pytest.raises(ConfigError, match="line 5, column gbps: -1 is not between"):
        imported(tmp_path, text + "aws:us-east-1,gcp:europe-west4,-1\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,-0.01\n", "line 2, column usd_per_gb: -0.01 is not between"),
        ("src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0:0.1;0:0.2\n", "tiers begin at 0 and rise"),
        ("src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0:0.1;x:0.2\n", "column usd_per_gb: 'x' is not a number"),
        ("region,type,usd_per_hour\naws:us-east-1,m99.huge,1\n", "column type: 'm99.huge' is no machine type"),
        ("region,type,usd_per_hour\naws:us-east-1,m5.xlarge,1e9\n", "line 2, column usd_per_hour: 1e9 is not between"),
        ("region,type,usd_per_hour,spot\naws:us-east-1,m5.xlarge,1,maybe\n", "column spot: 'maybe' is neither"),
        ("src,dst,gbps,kind\naws:us-east-1,gcp:us-east1,3,learned\n", "column kind: 'learned' is none of imported, "),
        ("src,dst,gbps,date\naws:us-east-1,gcp:us-east1,3,yesterday\n", "column date: 'yesterday' is not a date"),
        ("src,dst,gbps,rtt_ms\naws:us-east-1,gcp:us-east1,3,-5\n", "line 2, column rtt_ms: -5 is not between"),
        ("src,dst,gbps\naws:us-east-1,gcp:us-east1\n", "column gbps: is missing"),
        ("src,dst,gbps\naws:us-east-1,gcp:us-east1,3,4\n", "line 2: more fields than the header has"),
        ("from,to,speed\na,b,1\n", "line 1: no column src or src_region"),
        ("", "line 1: no column"),
    ],
)
def test_a_bad_figure_names_its_place_and_changes_nothing(tmp_path: Path, text: str, words: str) -> None:
    good = "src,dst,gbps\naws:us-east-1,gcp:us-east4,4\n"
    folder = imported(tmp_path, good)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError) as raised:
        imported(tmp_path, text)
    assert words in str(raised.value)
    assert "table.csv" in str(raised.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_measured_and_imported_links_stand_beside_each_other(tmp_path: Path) -> None:
    imported(tmp_path, "src,dst,gbps,date\naws:us-east-1,gcp:europe-west4,3,2026-11-21\n")
    folder = imported(
        tmp_path, "src,dst,gbps,kind,date,method\naws:us-east-1,gcp:europe-west4,2,measured,2026-05-25,iperf3\n"
    )
    link = load_catalog(folder, today=TODAY).grid.link(VIRGINIA, EEMSHAVEN)
    assert link is not None
    assert link.gbps == pytest.approx(2.5)
    assert [(part.origin.kind, part.weight) for part in link.parts] == [
        ("measured", 0.5),
        ("imported", 0.5),
        ("modelled", 0.0),
    ]


def test_the_folder_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRADEWIND_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert catalog_folder() == tmp_path / "tradewind" / "catalog"
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path / "mine"))
    assert catalog_folder() == tmp_path / "mine" / "catalog"
    assert catalog_folder(str(tmp_path / "other")) == tmp_path / "other" / "catalog"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["catalog", "show", "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_show_says_layer_source_date_and_method_of_each_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    sample = Sample(VIRGINIA, EEMSHAVEN, 2.5, False, 64, 10**10, 32.0, "m5.8xlarge", "job 7", today)
    store_samples(tmp_path / "catalog", [sample])
    assert main(["catalog", "show", "aws:us-east-1", "gcp:europe-west4"]) == 0
    text = capsys.readouterr().out
    assert "2.5 Gbit/s, 100% of it" in text
    assert "not counted" in text
    assert f"learned, job 7, 10.0 GB in 32.0 s over 64 connections, m5.8xlarge, {today}" in text
    rate = shown(capsys, "aws:us-east-1", "gcp:europe-west4")[0]
    assert (rate["about"], rate["figure"], rate["value"]) == ("aws:us-east-1 → gcp:europe-west4", "rate", 2.5)
    assert rate["origin"]["layer"] == "learned"
    assert [layer["origin"]["layer"] for layer in rate["layers"]] == ["learned", "modelled"]


def test_every_figure_that_is_shown_has_an_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    assert len(shown(capsys)) == len(load_catalog().places)
    for words in (["azure:uksouth"], ["azure:uksouth", "aws:sa-east-1"]):
        for figure in shown(capsys, *words):
            assert figure["origin"]["layer"], figure
            assert figure["origin"]["source"], figure
            assert figure["origin"]["date"] or figure["origin"]["layer"] in ("assumed", "modelled"), figure


def test_show_refuses_what_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "show", "aws:us-east-1", "aws:us-east-1"]) == 2
    assert main(["catalog", "show", "a:b", "c:d", "e:f"]) == 2
    assert main(["catalog", "import"]) == 2
    assert "both regions are the same" in capsys.readouterr().err
