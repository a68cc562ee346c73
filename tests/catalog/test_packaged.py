"""The packaged catalog is complete, states the origin of each figure, and matches known facts."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.catalog.modelled import distance_km
from tradewind.catalog.user_files import import_table
from tradewind.cli.main import main
from tradewind.errors import ConfigError
from tradewind.model.region import Region

GRID = Path(__file__).parents[3] / "shared" / "grid"
TODAY = datetime.date(2025, 6, 1)


def test_every_pair_of_regions_can_be_planned() -> None:
    catalog = load_catalog()
    assert len(catalog.places) > 100
    for src in catalog.places:
        assert catalog.machine_offers(src)
        for dst in catalog.places:
            if src != dst:
                price, link = catalog.egress(src, dst), catalog.grid.link(src, dst)
                assert price is not None
                assert price.origin.source
                assert price.origin.date
                assert link is not None
                assert link.origin.kind == "modelled"
                assert 0.1 < link.gbps < 20


@pytest.mark.skipif(not GRID.is_dir(), reason="needs the price table in ../shared/grid")
def test_the_rules_match_the_providers_list_prices() -> None:
    catalog = load_catalog()
    with (GRID / "egress_price_2022.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) > 6000
    for row in rows:
        price = catalog.egress(Region.parse(row["src"]), Region.parse(row["dst"]))
        assert price is not None
        assert price.listed_tiers[0][1] == pytest.approx(float(row["usd_per_gb"])), row
        assert price.unit == ("GiB" if row["src"].startswith("gcp") else "GB")


def test_prices_fall_with_volume() -> None:
    price = load_catalog().egress(Region("aws", "us-east-1"), Region("gcp", "us-east1"))
    assert price is not None
    assert price.mean_usd_per_gb(100) == pytest.approx(0.09)
    assert price.mean_usd_per_gb(20480) == pytest.approx((10240 * 0.09 + 10240 * 0.085) / 20480)
    assert price.mean_usd_per_gb(100, used_gb=200_000) == pytest.approx(0.05)


def test_a_gib_is_more_than_a_gb() -> None:
    """Google states prices and tiers per GiB, 7% more than a GB; plans count GB."""
    price = load_catalog().egress(Region("gcp", "us-east1"), Region("aws", "us-east-1"))
    assert price is not None
    assert price.listed_tiers == ((0.0, 0.12), (1024.0, 0.11), (10240.0, 0.08))
    assert price.cost_usd(2**30 / 1e9) == pytest.approx(0.12)
    assert price.cost_usd(2**40 / 1e9 + 2**30 / 1e9) == pytest.approx(1024 * 0.12 + 0.11)


def test_an_imported_price_keeps_its_unit(tmp_path: Path) -> None:
    table, folder = tmp_path / "prices.csv", tmp_path / "catalog"
    table.write_text(
        "src,dst,usd_per_gb,unit,counted\n"
        "gcp:us-east1,aws:us-east-1,0:0.1;1024:0.05,GiB,region\naws:us-east-1,gcp:us-east1,0.02,,\n"
    )
    import_table(table, folder, date="2025-06-01")
    import_table(table, folder, date="2025-06-02")
    catalog = load_catalog(folder, today=TODAY)
    ends = Region("gcp", "us-east1"), Region("aws", "us-east-1")
    price, back = catalog.egress(*ends), catalog.egress(*reversed(ends))
    assert price is not None
    assert (price.unit, price.counted, price.listed_tiers) == ("GiB", "region", ((0.0, 0.1), (1024.0, 0.05)))
    assert price.usd_per_gb == pytest.approx(0.1 / 1.073741824)
    assert back is not None
    assert (back.unit, back.counted, back.usd_per_gb) == ("GB", "account", 0.02)
    table.write_text("src,dst,usd_per_gb,unit\ngcp:us-east1,aws:us-east-1,0.1,GigaByte\n")
    with pytest.raises(ConfigError, match="column unit: 'GigaByte' is not one of GB, GiB"):
        import_table(table, folder, date="2025-06-03")


def test_tiers_count_the_same_traffic_as_the_provider() -> None:
    catalog = load_catalog()

    def accounts(*pairs: tuple[str, str], used_gb: float = 0.0) -> dict[str, float]:
        ends = [(Region.parse(a), Region.parse(b)) for a, b in pairs]
        charges = catalog.egress_charges(dict.fromkeys(ends, 8000.0), used_gb)
        return {charge.account: charge.usd for charge in charges}

    sink = "gcp:us-east1"
    by_region = accounts(("aws:us-east-1", sink), ("aws:us-west-2", sink))
    assert by_region == {"aws:us-east-1": pytest.approx(720), "aws:us-west-2": pytest.approx(720)}
    zone = accounts(("azure:eastus", sink), ("azure:uksouth", sink))
    assert zone == {"azure": pytest.approx(10240 * 0.0875 + 5760 * 0.083)}
    areas = accounts(
        ("gcp:us-east1", "aws:us-east-1"), ("gcp:us-west1", "aws:us-east-1"), ("gcp:us-east1", "aws:eu-west-1")
    )
    assert set(areas) == {"gcp north-america → north-america", "gcp north-america → europe"}
    assert accounts(("aws:us-east-1", sink), used_gb=200_000) == {"aws:us-east-1": pytest.approx(8000 * 0.05)}


def test_distances_match_the_globe() -> None:
    places = load_catalog().places
    tokyo, london = places[Region("aws", "ap-northeast-1")], places[Region("aws", "eu-west-2")]
    assert distance_km(tokyo, london) == pytest.approx(9560, rel=0.01)


def test_an_imported_link_replaces_the_model_and_ages(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("src,dst,gbps,rtt_ms,date\naws:us-east-1,gcp:us-east1,4.0,21,2025-06-01\n")
    folder = tmp_path / "catalog"
    assert str(import_table(table, folder, date="2025-06-01")) == "1 link"
    pair = (Region("aws", "us-east-1"), Region("gcp", "us-east1"))
    fresh = load_catalog(folder, today=TODAY).grid.link(*pair)
    assert fresh is not None
    assert (fresh.gbps, fresh.rtt_ms, fresh.origin.kind) == (4.0, 21.0, "imported")
    model = load_catalog().grid.link(*pair)
    old = load_catalog(folder, today=TODAY + datetime.timedelta(days=180)).grid.link(*pair)
    assert model is not None
    assert old is not None
    assert old.gbps == pytest.approx((4.0 + model.gbps) / 2)


def test_skyplane_profiles_can_be_imported(tmp_path: Path) -> None:
    table = tmp_path / "profile.csv"
    table.write_text(
        "src_region,dst_region,throughput_sent,throughput_received\naws:us-east-1,gcp:us-east1,5e9,4.5e9\n"
    )
    import_table(table, tmp_path / "c", date="2025-06-01")
    link = load_catalog(tmp_path / "c", today=TODAY).grid.link(Region("aws", "us-east-1"), Region("gcp", "us-east1"))
    assert link is not None
    assert link.gbps == 4.5


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("aws:us-east-1,gcp:us-east1,-3", "line 3, column gbps: -3 is not between"),
        ("aws:us-east-1,gcp:us-east1,99999", "line 3, column gbps"),
        ("aws:us-east-1,gcp:us-east1,fast", "line 3, column gbps: 'fast' is not a number"),
        ("us-east-1,gcp:us-east1,3", "line 3, column src"),
        ("aws:us-east-1,gcp:us-east1,nan", "line 3, column gbps"),
    ],
)
def test_a_bad_figure_is_located_and_nothing_is_imported(tmp_path: Path, line: str, words: str) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(f"src,dst,gbps\naws:us-east-1,gcp:us-east4,4\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        import_table(table, tmp_path / "c", date="2025-06-01")
    assert not (tmp_path / "c").exists()


def test_show_prints_the_origin_of_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["catalog", "show", "aws:us-east-1", "gcp:europe-west4"]) == 0
    shown = capsys.readouterr().out
    assert "modelled, fitted to" in shown
    assert "published, AWS EC2 on-demand pricing: data transfer, 2022-11-28" in shown
    assert "0.12 USD/GiB, 0.11 from 1,024 GiB, 0.08 from 10,240 GiB (0.1118 USD/GB)" in shown
    assert "0.09 USD/GB, 0.085 from 10,240 GB" in shown
    assert main(["catalog", "show", "aws:us-eest-1"]) == 2
    assert "aws:us-east-1" in capsys.readouterr().err
