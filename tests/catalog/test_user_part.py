"""The user's part of the catalog: atomic imports, and `show`, which states the origin of each figure."""

from __future__ import annotations

import datetime
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tradewind.catalog import locked
from tradewind.catalog.ageing import Figure
from tradewind.catalog.learned import Sample, store_samples
from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.refreshed import ListedMachinePrice, read_refreshed, store_refreshed
from tradewind.catalog.user_files import import_table, write_links
from tradewind.cli.main import main
from tradewind.errors import ConfigError
from tradewind.model.origin import Origin
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


def test_imports_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Each import reads the table, changes it and writes it as a whole. Without a lock the last one would win."""
    regions = ["us-east-2", "us-west-1", "us-west-2", "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "sa-east-1"]
    begin = threading.Barrier(len(regions))
    folder = tmp_path / "catalog"

    def take(region: str) -> None:
        table = tmp_path / f"{region}.csv"
        begin.wait()
        for gbps in range(1, 6):
            table.write_text(f"src,dst,gbps\naws:us-east-1,aws:{region},{gbps}\n")
            import_table(table, folder, date="2026-11-21")

    takers = [threading.Thread(target=take, args=(region,)) for region in regions]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    grid = load_catalog(folder, today=TODAY).grid
    links = {region: grid.link(VIRGINIA, Region("aws", region)) for region in regions}
    assert {region: link.gbps for region, link in links.items() if link is not None} == dict.fromkeys(regions, 5.0)


def test_refreshes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    begin = threading.Barrier(8)

    def take(number: int) -> None:
        begin.wait()
        origin = Origin("refreshed", "a test", "2026-11-21", "")
        machines = [
            ListedMachinePrice(Region("aws", f"region-{number}"), f"t{each}", False, 1.0, origin) for each in range(5)
        ]
        store_refreshed(tmp_path / "catalog", "aws", [], machines)

    takers = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert len(list(read_refreshed(tmp_path / "catalog" / "refreshed-aws.csv"))) == 40


def test_the_wait_for_another_writer_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "LOCK_S_MAX", 0.1)
    with locked.one_writer(tmp_path / "catalog"), pytest.raises(ConfigError, match="another process has been writing"):
        imported(tmp_path, "src,dst,gbps\naws:us-east-1,aws:us-west-2,4\n")


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
        ("region,type,usd_per_hour\naws:us-east-1,m99.huge,1\n", "column type: 'm99.huge' is not a machine type"),
        ("region,type,usd_per_hour\naws:us-east-1,m5.xlarge,1_0\n", "column usd_per_hour: '1_0' is not a number"),
        ("region,type,usd_per_hour\naws:us-east-1,m5.xlarge,١\n", "column usd_per_hour: '١' is not a number"),
        ("region,type,usd_per_hour\naws:us-east-1,m5.xlarge,nan\n", "column usd_per_hour: nan is not between"),
        ("region,type,usd_per_hour\naws:us-east-1,m5.xlarge,1e9\n", "line 2, column usd_per_hour: 1e9 is not between"),
        ("region,type,usd_per_hour,spot\naws:us-east-1,m5.xlarge,1,maybe\n", "column spot: 'maybe' is neither"),
        (
            "src,dst,gbps,kind\naws:us-east-1,gcp:us-east1,3,learned\n",
            "column kind: 'learned' is not one of imported, ",
        ),
        ("src,dst,gbps,date\naws:us-east-1,gcp:us-east1,3,yesterday\n", "column date: 'yesterday' is not a date"),
        ("src,dst,gbps,rtt_ms\naws:us-east-1,gcp:us-east1,3,-5\n", "line 2, column rtt_ms: -5 is not between"),
        ("src,dst,gbps\naws:us-east-1,gcp:us-east1\n", "column gbps: is missing"),
        ("src,dst,gbps\naws:us-east-1,gcp:us-east1,3,4\n", "line 2: more fields than the header has"),
        ("from,to,speed\na,b,1\n", "line 1: no column src or src_region"),
        ("src,dst,gbps\naws:us-east-1,gcp:europe-west44,4\n", "line 2, column dst: unknown region gcp:europe-west44"),
        (
            "src_region,dst_region,gbps\naws:us-eest-1,gcp:us-east1,4\n",
            "line 2, column src_region: unknown region aws:us-eest",
        ),
        ("src,dst,usd_per_gb\naws:us-east-1,gcp:us-east11,0.1\n", "line 2, column dst: unknown region gcp:us-east11"),
        (
            "region,type,usd_per_hour\naws:us-east-11,m5.xlarge,1\n",
            "line 2, column region: unknown region aws:us-east-11",
        ),
        ("src,dst,gbps,date\naws:us-east-1,gcp:us-east1,3,2026-11-23\n", "column date: 2026-11-23 is in the future"),
        (
            "src,dst,gbps\naws:us-east-1,gcp:us-east1,3\naws:us-east-2,gcp:us-east1,3\naws:us-east-1,gcp:us-east1,4\n",
            "line 4, column src: aws:us-east-1 → gcp:us-east1 is already in line 2",
        ),
        (
            "region,type,usd_per_hour\naws:us-east-1,m5.xlarge,1\naws:us-east-1,m5.xlarge,2\n",
            "line 3, column region: aws:us-east-1 is already in line 2",
        ),
        ("src,dst,gbps\naws:us-east-1,gcp:us-east1,9999\n", "line 2, column gbps: 9999 is not between 0 and 400"),
        ("", "line 1: no column"),
    ],
)
def test_a_bad_figure_is_located_and_changes_nothing(tmp_path: Path, text: str, words: str) -> None:
    good = "src,dst,gbps\naws:us-east-1,gcp:us-east4,4\n"
    folder = imported(tmp_path, good)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError) as raised:
        imported(tmp_path, text)
    assert words in str(raised.value)
    assert "table.csv" in str(raised.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_measured_and_imported_links_are_both_kept(tmp_path: Path) -> None:
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


def test_show_prints_layer_source_date_and_method_of_each_figure(
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


def test_show_of_a_pair_refers_to_its_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    machines = {
        f["about"]: f["value"] for f in shown(capsys, "aws:us-east-1", "gcp:europe-west4") if f["unit"] == "types"
    }
    assert list(machines) == ["aws:us-east-1", "gcp:europe-west4"]
    assert "c5n.2xlarge" in machines["aws:us-east-1"]
    assert main(["catalog", "show", "aws:us-east-1", "gcp:europe-west4"]) == 0
    text = capsys.readouterr().out
    for region, types in machines.items():
        line = f"{len(types)} types; `tradewind catalog show {region}` has caps, prices and quota"
        assert line in text
        assert {f["figure"].removesuffix(" caps") for f in shown(capsys, region) if "caps" in f["figure"]} == {*types}


def test_every_shown_figure_has_an_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    assert len(shown(capsys)) == len(load_catalog().places)
    for words in (["azure:uksouth"], ["azure:uksouth", "aws:sa-east-1"]):
        for figure in shown(capsys, *words):
            if figure["unit"] == "types":
                continue  # Only a count: the figures are in the output that it refers to.
            if figure["figure"] in ("quota", "store, per machine"):
                assert not figure["value"] and figure["origin"] is None, "no such figures are packaged"
                continue
            assert figure["origin"]["layer"], figure
            assert figure["origin"]["source"], figure
            assert figure["origin"]["date"] or figure["origin"]["layer"] in ("assumed", "modelled"), figure


def test_show_refuses_invalid_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "show", "aws:us-east-1", "aws:us-east-1"]) == 2
    assert main(["catalog", "show", "a:b", "c:d", "e:f"]) == 2
    assert main(["catalog", "import"]) == 2
    assert "both regions are the same" in capsys.readouterr().err


def test_the_newer_figure_of_a_pair_wins_in_any_order_of_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    new, old = tmp_path / "new.csv", tmp_path / "old.csv"
    new.write_text("src,dst,gbps\naws:us-east-1,gcp:europe-west4,6\n")
    old.write_text("src,dst,gbps\naws:us-east-1,gcp:europe-west4,4.2\naws:us-east-2,gcp:europe-west4,4\n")
    assert main(["catalog", "import", str(new), "--date", "2026-11-20"]) == 0
    assert capsys.readouterr().out.startswith("1 link from ")
    assert main(["catalog", "import", str(old), "--date", "2022-03-01"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 link from ")
    assert said[1:] == [
        "not imported, because the existing figures are newer: 1",
        "  aws:us-east-1 → gcp:europe-west4 stays 6 Gbit/s of 2026-11-20",
        "imported, but too old to count for their links: 2",
    ]
    link = load_catalog(tmp_path / "catalog", today=TODAY).grid.link(VIRGINIA, EEMSHAVEN)
    assert link is not None
    assert link.gbps == pytest.approx(6, rel=0.01)
    assert main(["catalog", "import", str(old), "--date", "2026-11-21", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"figures": "link", "taken": 2, "stayed": [], "too_old": 0}


def test_newer_prices_win_too(tmp_path: Path) -> None:
    machine = "region,type,usd_per_hour,date\naws:us-east-1,m5.8xlarge,{},{}\n"
    price = "src,dst,usd_per_gb,date\naws:us-east-1,gcp:europe-west4,{},{}\n"
    for form in (machine, price):
        imported(tmp_path, form.format(0.9, "2026-11-01"))
        imported(tmp_path, form.format(0.3, "2022-11-01"))
    catalog = load_catalog(tmp_path / "catalog", today=TODAY)
    egress = catalog.egress(VIRGINIA, EEMSHAVEN)
    assert egress is not None
    assert egress.tiers == (PriceTier(0, 0.9),)
    assert {o.name: o for o in catalog.machine_offers(VIRGINIA)}["m5.8xlarge"].usd_per_hour == 0.9


def test_new_regions_are_imported_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    (tmp_path / "sites.csv").write_text("src,dst,gbps\nsite:lab,aws:us-east-1,4\n")
    (tmp_path / "new.csv").write_text("src,dst,gbps\naws:us-east-1,gcp:europe-west44,4\n")
    assert main(["catalog", "import", str(tmp_path / "sites.csv")]) == 0
    assert main(["catalog", "import", str(tmp_path / "new.csv")]) == 2
    error = capsys.readouterr().err
    assert "hint: did you mean gcp:europe-west4 or " in error
    assert "--new-regions accepts regions that the catalog does not know" in error
    assert main(["catalog", "import", str(tmp_path / "new.csv"), "--new-regions"]) == 0
    assert main(["catalog", "import", str(tmp_path / "new.csv"), "--date", "2999-01-01"]) == 2
    assert "--date 2999-01-01 is in the future" in capsys.readouterr().err
    assert main(["catalog", "show", "--new-regions"]) == 2


def test_the_results_of_a_measurement_can_be_imported(tmp_path: Path) -> None:
    """The table is from `tradewind measure --out`, also of a sky, whose regions need not belong to a cloud."""
    origin = Origin("measured", "tradewind measure, world.json", "2026-11-21", "64 connections")
    pairs = [(VIRGINIA, EEMSHAVEN), (Region("emulated", "north"), Region("emulated", "south"))]
    table = tmp_path / "measured.csv"
    write_links(table, [(pair, Figure(2.25, origin, 12.5)) for pair in pairs])
    with pytest.raises(ConfigError, match="line 3, column src: unknown region emulated:north"):
        import_table(table, tmp_path / "catalog", date="2026-11-21")
    import_table(table, tmp_path / "catalog", date="2026-11-21", new_regions=True)
    grid = load_catalog(tmp_path / "catalog", today=TODAY).grid
    for pair in pairs:
        link = grid.link(*pair)
        assert link is not None
        assert (link.gbps, link.rtt_ms, link.origin) == (2.25, 12.5, origin)


def test_a_figure_in_a_wrong_unit_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="9999 is not between 0 and 400") as raised:
        imported(tmp_path, "src,dst,gbps\naws:us-east-1,gcp:us-east1,9999\n")
    assert raised.value.hint is not None
    assert "is this one in Mbit/s?" in raised.value.hint
    with pytest.raises(ConfigError, match="column usd_per_gb: 9 is not between 0 and 5") as raised:
        imported(tmp_path, "src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,9\n")
    assert raised.value.hint == "prices are in USD per GB; is this one in cents?"
    with pytest.raises(ConfigError, match="no column") as empty:
        imported(tmp_path, "")
    assert empty.value.hint is not None
    assert "its first line names its columns" in empty.value.hint


def test_a_date_that_has_begun_in_the_east_is_accepted(tmp_path: Path) -> None:
    """At noon in London it is 2 a.m. of the next day on Kiritimati."""
    imported(tmp_path, "src,dst,gbps,date\naws:us-east-1,gcp:us-east1,3,2026-11-22\n")


def test_the_premium_network_tier_of_skyplanes_file_counts(tmp_path: Path) -> None:
    head = "src_region,dst_region,src_tier,dst_tier,throughput_received\n"
    lines = ["PREMIUM,PREMIUM,5e9", "STANDARD,PREMIUM,1e9"]
    text = head + "".join(f"aws:us-east-1,gcp:europe-west4,{line}\n" for line in lines)
    link = load_catalog(imported(tmp_path, text), today=TODAY).grid.link(VIRGINIA, EEMSHAVEN)
    assert link is not None
    assert link.gbps == 5


def test_skyplanes_file_is_imported_with_google_zones_and_failed_probes(tmp_path: Path) -> None:
    """Uses the columns that Skyplane publishes. Google's places are zones there, while prices are for regions."""
    head = "src_region,src_tier,dst_region,dst_tier,throughput_sent,throughput_recieved,success\n"
    text = (
        head
        + "aws:us-east-1,PREMIUM,gcp:europe-west4-a,PREMIUM,5e9,4.7e9,True\n"
        + "gcp:europe-west1-b,PREMIUM,gcp:europe-west4-a,PREMIUM,7e9,6.9e9,True\n"
        + "gcp:europe-west4-a,PREMIUM,aws:us-east-1,PREMIUM,,,False\n"
    )
    grid = load_catalog(imported(tmp_path, text), today=TODAY).grid
    rates = {pair: link.gbps for pair, link in grid.links.items() if link.origin.kind == "imported"}
    assert rates == {(VIRGINIA, EEMSHAVEN): 4.7, (Region("gcp", "europe-west1"), EEMSHAVEN): 6.9}


def test_two_zones_of_a_region_are_one_place(tmp_path: Path) -> None:
    text = "src,dst,gbps\naws:us-east-1,gcp:europe-west4-a,5\naws:us-east-1,gcp:europe-west4-b,6\n"
    with pytest.raises(ConfigError, match="aws:us-east-1 → gcp:europe-west4 is already in line 2"):
        imported(tmp_path, text)


@pytest.mark.parametrize("text", ["src,dst,gbps\n", "src,dst,gbps\naws:us-east-1,aws:us-east-1,5\n"])
def test_an_empty_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="no usable row in it") as raised:
        imported(tmp_path, text)
    assert raised.value.hint is not None
    assert not (tmp_path / "catalog").exists()


@pytest.mark.parametrize("line", ["aws:us-east-1,gcp:europe-west4,-5", "aws:us-east-1,gcp:europe-west4", "a,b,5"])
def test_each_refused_line_states_that_nothing_was_imported(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="line 2") as raised:
        imported(tmp_path, f"src,dst,gbps\n{line}\n")
    assert raised.value.hint == "nothing was imported; fix the line and import the file again"


def test_spot_may_be_true_or_false(tmp_path: Path) -> None:
    text = "region,type,usd_per_hour,spot\naws:us-east-1,m5.8xlarge,1.1,false\naws:us-east-1,m5.8xlarge,0.3,True\n"
    offers = {o.name: o for o in load_catalog(imported(tmp_path, text), today=TODAY).machine_offers(VIRGINIA)}
    assert [offers[name].usd_per_hour for name in ("m5.8xlarge", "m5.8xlarge (spot)")] == [1.1, 0.3]
