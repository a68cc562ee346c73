"""Answers of the clouds' price APIs: what is imported, what is ignored, and the catalog after failures."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.catalog import recorded
from tests.catalog.price_server import Answer, PriceServer, price_server
from tradewind.catalog.load import load_catalog
from tradewind.catalog.refresh import fetch
from tradewind.catalog.refresh.fetch import Fetcher, same_host
from tradewind.catalog.refresh.figures import Prices, paid_tiers
from tradewind.catalog.refresh.run import Endpoints, Refresh, RefreshOutcome, refresh
from tradewind.cli.main import main
from tradewind.errors import PriceApiError, PriceApiRefused, PriceApiUnavailable, UsageError
from tradewind.model.origin import Origin
from tradewind.model.region import Region

DATE = "2026-11-21"
TODAY = datetime.date(2026, 11, 21)
VIRGINIA, EAST_US, US_EAST4 = Region("aws", "us-east-1"), Region("azure", "eastus"), Region("gcp", "us-east4")
SKUS = "/v1/services/6F81-5844-456A/skus"
EC2_LIST = "/offers/v1.0/aws/AmazonEC2/20261118225308/us-east-1/index.csv"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceServer]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with price_server() as started:
        yield started


def fetch_prices(
    server: PriceServer, folder: Path, *providers: str, regions: tuple[Region, ...] = ()
) -> list[RefreshOutcome]:
    endpoints = Endpoints(server.url, f"{server.url}/api/retail/prices", server.url)
    asked = Refresh(load_catalog(folder, today=TODAY), folder, DATE, Fetcher(pause_s=0.0), endpoints)
    return refresh(asked, providers, regions)


def serve_azure(server: PriceServer) -> None:
    """Serve two pages of bandwidth and one of machines."""

    def answer(query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        bandwidth = recorded.azure_bandwidth()
        if query.get("$skip") == "5":
            return recorded.azure_page(bandwidth[5:])
        if "serviceName eq 'Bandwidth'" in query["$filter"]:
            return recorded.azure_page(bandwidth[:5], f"{server.url}/api/retail/prices?$skip=5")
        matching = "armSkuName eq 'Standard_D32_v5'" in query["$filter"]
        return recorded.azure_page(recorded.azure_machines() if matching else [])

    server.routes["/api/retail/prices"] = answer


def serve_gcp(server: PriceServer) -> None:
    """Serve two pages to clients with a key."""
    skus = recorded.gcp_skus()

    def answer(query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if headers.get("X-Goog-Api-Key", headers.get("X-goog-api-key")) != "sesame":
            error = {
                "error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "…"}
            }
            return Answer.of(error, status=400)
        assert "key" not in query
        assert query["currencyCode"] == "USD"
        if query.get("pageToken") == "two":
            return Answer.of({"skus": skus[6:], "nextPageToken": ""})
        return Answer.of({"skus": skus[:6], "nextPageToken": "two"})

    server.routes[SKUS] = answer


def test_aws_egress_is_read_by_destination_and_volume(server: PriceServer, tmp_path: Path) -> None:
    recorded.serve_aws(server)
    (outcome,) = fetch_prices(server, tmp_path, "aws")
    assert (outcome.error, outcome.egress_prices, outcome.machine_prices) == (None, 3, 0)
    assert any("name regions with --region" in note for note in outcome.notes)
    assert not server.asked[EC2_LIST]
    catalog = load_catalog(tmp_path, today=TODAY)
    ohio = catalog.egress(VIRGINIA, Region("aws", "us-east-2"))
    assert ohio is not None
    assert (ohio.usd_per_gb, ohio.origin.kind, ohio.origin.date) == (0.01, "refreshed", DATE)
    assert ohio.origin.source == "AWS Price List, AWSDataTransfer, published 2026-11-17"
    internet = catalog.egress(VIRGINIA, Region("gcp", "europe-west4"))
    assert internet is not None
    assert list(internet.listed_tiers) == [(0, 0.091), (10240, 0.085), (51200, 0.07), (153600, 0.05)]
    assert (internet.unit, internet.counted) == ("GB", "region")
    unasked = catalog.egress(VIRGINIA, Region("aws", "eu-west-1"))
    assert unasked is not None
    assert unasked.origin.kind == "published"


def test_aws_machine_prices_are_read_for_named_regions(server: PriceServer, tmp_path: Path) -> None:
    recorded.serve_aws(server)
    (outcome,) = fetch_prices(server, tmp_path, regions=(VIRGINIA,))
    assert (outcome.provider, outcome.machine_prices) == ("aws", 2)
    assert any("does not offer c5n.18xlarge, c5n.2xlarge, m5.xlarge, m6in.2xlarge" in note for note in outcome.notes)
    offers = {offer.name: offer for offer in load_catalog(tmp_path, today=TODAY).machine_offers(VIRGINIA)}
    assert (offers["m5.8xlarge"].usd_per_hour, offers["m5.8xlarge"].origin.kind) == (1.536, "refreshed")
    assert offers["m5.8xlarge"].origin.source == "AWS Price List, AmazonEC2, published 2026-11-18"
    assert offers["m5.xlarge"].origin.kind == "published"
    assert offers["m5.8xlarge (spot)"].origin.kind == "assumed"


def test_a_long_list_is_only_read_as_far_as_needed(server: PriceServer, tmp_path: Path) -> None:
    types = ["c5n.18xlarge", "c5n.2xlarge", "c5n.9xlarge", "m5.8xlarge", "m5.xlarge", "m6in.2xlarge"]
    rows = [recorded.ec2_row(name, "1.25") for name in types]
    poison = recorded.ec2_row("m5.xlarge", "not a number")
    recorded.serve_aws(server, Answer(recorded.ec2_list(*rows, poison).encode()))
    (outcome,) = fetch_prices(server, tmp_path, regions=(VIRGINIA,))
    assert (outcome.error, outcome.machine_prices) == (None, 6)


def test_azure_prices_of_machines_spot_and_egress_are_read(server: PriceServer, tmp_path: Path) -> None:
    serve_azure(server)
    (outcome,) = fetch_prices(server, tmp_path, "azure")
    assert (outcome.error, outcome.regions, outcome.machine_prices, outcome.egress_prices) == (None, 2, 2, 5)
    catalog = load_catalog(tmp_path, today=TODAY)
    offers = {offer.name: offer for offer in catalog.machine_offers(EAST_US)}
    assert offers["Standard_D32_v5"].usd_per_hour == 1.536
    assert offers["Standard_D32_v5 (spot)"].usd_per_hour == 0.1914
    assert offers["Standard_D32_v5 (spot)"].origin.source == "Azure Retail Prices API, in effect since 2021-11-01"
    prices = {
        name: catalog.egress(EAST_US, Region.parse(name))
        for name in ("azure:westus2", "azure:uksouth", "aws:eu-west-1")
    }
    assert {name: price and price.usd_per_gb for name, price in prices.items()} == {
        "azure:westus2": 0.02,
        "azure:uksouth": 0.05,
        "aws:eu-west-1": 0.087,
    }
    internet = prices["aws:eu-west-1"]
    assert internet is not None
    assert [tier.from_gb for tier in internet.tiers] == [0, 10335, 51295, 153695]


def test_azure_is_only_queried_for_named_regions(server: PriceServer, tmp_path: Path) -> None:
    questions = []

    def answer(query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        questions.append(query["$filter"])
        return recorded.azure_page(recorded.azure_bandwidth())

    server.routes["/api/retail/prices"] = answer
    (outcome,) = fetch_prices(server, tmp_path, regions=(EAST_US,))
    assert (outcome.regions, outcome.egress_prices) == (1, 3)
    assert all(question.endswith("and armRegionName eq 'eastus'") for question in questions)


def test_gcp_machine_prices_are_computed_from_cores_and_memory(
    server: PriceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_gcp(server)
    monkeypatch.setenv("TRADEWIND_GCP_API_KEY", "sesame")
    (outcome,) = fetch_prices(server, tmp_path, regions=(US_EAST4,))
    assert (outcome.error, outcome.machine_prices) == (None, 6)
    assert any("Atlantis" in note for note in outcome.notes)
    catalog = load_catalog(tmp_path, today=TODAY)
    offers = {offer.name: offer for offer in catalog.machine_offers(US_EAST4)}
    assert offers["n2-standard-32"].usd_per_hour == pytest.approx(32 * 0.035603 + 128 * 0.004772)
    assert offers["n2-standard-32 (spot)"].usd_per_hour == pytest.approx(32 * 0.0086 + 128 * 0.001153)
    assert offers["n2-standard-4"].origin.method == "cores and memory"
    assert "sesame" not in (tmp_path / "refreshed-gcp.csv").read_text()


def test_gcp_egress_prices_are_per_gb_not_per_gib(
    server: PriceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_gcp(server)
    monkeypatch.setenv("TRADEWIND_GCP_API_KEY", "sesame")
    fetch_prices(server, tmp_path, "gcp", regions=(US_EAST4,))
    catalog, gib_in_gb = load_catalog(tmp_path, today=TODAY), 2**30 / 1e9
    per_gb = {
        name: price.usd_per_gb * gib_in_gb
        for name in (
            "gcp:us-central1",
            "gcp:asia-northeast1",
            "aws:eu-west-1",
            "aws:me-south-1",
            "azure:southafricanorth",
        )
        if (price := catalog.egress(US_EAST4, Region.parse(name))) is not None
    }
    expected = [0.02, 0.08, 0.12, 0.12, 0.15]
    assert list(per_gb.values()) == pytest.approx(expected, abs=1e-8), per_gb
    emea = catalog.egress(US_EAST4, Region("aws", "eu-west-1"))
    assert emea is not None
    assert [tier.from_gb for tier in emea.tiers] == pytest.approx([0, 1024 * gib_in_gb, 10240 * gib_in_gb])
    unsaid = catalog.egress(US_EAST4, Region("aws", "ap-northeast-1"))
    assert unsaid is not None
    assert unsaid.origin.kind == "published"


@pytest.mark.parametrize(("key", "words"), [("", "needs an API key"), ("wrong", "API key not valid")])
def test_gcp_without_a_good_key_is_refused(
    server: PriceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, words: str
) -> None:
    serve_gcp(server)
    monkeypatch.setenv("TRADEWIND_GCP_API_KEY", key)
    (outcome,) = fetch_prices(server, tmp_path, "gcp")
    assert isinstance(outcome.error, PriceApiRefused)
    assert words in str(outcome.error)
    assert not list(tmp_path.iterdir())


def test_an_api_key_does_not_follow_redirects(server: PriceServer, tmp_path: Path) -> None:
    with price_server() as elsewhere:
        elsewhere.routes["/there"] = Answer.of({"skus": []})
        server.routes["/here"] = Answer(status=302, headers={"Location": f"{elsewhere.url}/there"})
        Fetcher().json("a test", f"{server.url}/here", {"X-Goog-Api-Key": "sesame"})
        assert elsewhere.asked["/there"] == 1
        assert "sesame" not in json.dumps([dict(headers) for headers in elsewhere.headers])


def test_a_broken_download_is_restarted(server: PriceServer, tmp_path: Path) -> None:
    whole = recorded.ec2_list(*[recorded.ec2_row("m5.8xlarge", "1.536")] * 50).encode()
    recorded.serve_aws(server, [Answer(whole, cut_at=3000), Answer(status=503), Answer(whole)])
    (outcome,) = fetch_prices(server, tmp_path, regions=(VIRGINIA,))
    assert (outcome.error, outcome.machine_prices) == (None, 1)
    assert server.asked[EC2_LIST] == 3


def test_attempts_are_limited_and_nothing_is_half_imported(server: PriceServer, tmp_path: Path) -> None:
    recorded.serve_aws(server)
    fetch_prices(server, tmp_path, "aws", regions=(VIRGINIA,))
    before = (tmp_path / "refreshed-aws.csv").read_bytes()
    whole = recorded.ec2_list(*[recorded.ec2_row("m5.8xlarge", "1.1")] * 50).encode()
    recorded.serve_aws(server, Answer(whole, cut_at=2000))
    server.asked.clear()
    (outcome,) = fetch_prices(server, tmp_path, "aws", regions=(VIRGINIA,))
    assert isinstance(outcome.error, PriceApiUnavailable)
    assert "bytes too early" in str(outcome.error)
    assert server.asked[EC2_LIST] == fetch.TRIES_MAX
    assert (tmp_path / "refreshed-aws.csv").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "refreshed-aws.csv"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(b"<html>maintenance</html>"), "not JSON"),
        (Answer.of({"Items": [{"armRegionName": "eastus"}]}), "cannot be understood"),
        (Answer.of({"Items": [recorded.azure_item(retailPrice=-1)]}), "without any of the requested prices"),
        (Answer.of({"Items": [recorded.azure_item(retailPrice=1e9)]}), "is not a price"),
        (Answer.of({"Items": [], "NextPageLink": "http://elsewhere.invalid/"}), "redirects to another server"),
        (Answer.of({"Error": {"Code": "BadRequest", "Message": "Invalid OData"}}, status=400), "Invalid OData"),
    ],
)
def test_an_unparsable_answer_changes_nothing(server: PriceServer, tmp_path: Path, answer: Answer, words: str) -> None:
    server.routes["/api/retail/prices"] = answer
    (outcome,) = fetch_prices(server, tmp_path, "azure")
    assert words in str(outcome.error)
    assert outcome.error is not None
    assert outcome.error.exit_code == 1
    assert not list(tmp_path.iterdir())


def test_an_endless_list_of_pages_is_abandoned(
    server: PriceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.catalog.refresh.azure.PAGES_MAX", 5)
    server.routes["/api/retail/prices"] = recorded.azure_page([], f"{server.url}/api/retail/prices?$skip=1")
    (outcome,) = fetch_prices(server, tmp_path, "azure")
    assert "more than 5 pages" in str(outcome.error)
    assert server.asked["/api/retail/prices"] == 5


def test_answers_that_are_too_large_are_not_read(server: PriceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "JSON_BYTES_MAX", 1 << 20)
    server.routes["/bomb"] = Answer.packed(" " * (8 << 20))
    with pytest.raises(PriceApiError, match="more than 1 MiB"):
        Fetcher().json("a bomb", f"{server.url}/bomb")


def test_a_server_that_asks_for_a_long_pause_is_not_waited_for(server: PriceServer) -> None:
    server.routes["/busy"] = Answer(status=429, headers={"Retry-After": "3600"})
    with pytest.raises(PriceApiUnavailable, match="429"):
        Fetcher(pause_s=0.0).json("a list", f"{server.url}/busy")
    assert server.asked["/busy"] == 1


def test_progress_is_reported(server: PriceServer) -> None:
    overrides: list[tuple[str, int]] = []
    server.routes["/long"] = Answer.packed("line\n" * (1 << 20))
    fetcher = Fetcher(progress=lambda what, count: overrides.append((what, count)))
    assert fetcher.lines("a list", f"{server.url}/long", lambda lines: sum(1 for _ in lines)) == 1 << 20
    assert len(overrides) >= 4
    assert overrides == sorted(overrides)


def test_refreshing_one_region_keeps_the_others(server: PriceServer, tmp_path: Path) -> None:
    serve_azure(server)
    fetch_prices(server, tmp_path, "azure")
    server.routes["/api/retail/prices"] = recorded.azure_page([recorded.bandwidth_item(0.5)])
    fetch_prices(server, tmp_path, regions=(EAST_US,))
    catalog = load_catalog(tmp_path, today=TODAY)
    new, old = (catalog.egress(Region("azure", name), VIRGINIA) for name in ("eastus", "southeastasia"))
    assert new is not None
    assert old is not None
    assert (new.usd_per_gb, old.usd_per_gb) == (0.5, 0.12)
    assert {
        offer.origin.kind for offer in catalog.machine_offers(EAST_US) if offer.name.startswith("Standard_D32")
    } == {"refreshed"}


def test_the_users_own_price_overrides_the_apis(server: PriceServer, tmp_path: Path) -> None:
    recorded.serve_aws(server)
    fetch_prices(server, tmp_path, "aws")
    (tmp_path / "prices.csv").write_text("src,dst,usd_per_gb,date\naws:us-east-1,aws:us-east-2,0.004,2024-01-01\n")
    price = load_catalog(tmp_path, today=TODAY).egress(VIRGINIA, Region("aws", "us-east-2"))
    assert price is not None
    assert (price.usd_per_gb, price.origin.kind) == (0.004, "imported")


def test_a_free_tier_is_not_counted_on() -> None:
    tiers = [(100.0, 0.087), (0.0, 0.0), (10335.0, 0.083), (20000.0, 0.083)]
    assert paid_tiers(tiers) == ((0.0, 0.087), (10335.0, 0.083))
    assert paid_tiers([(0.0, 0.0)]) == ((0.0, 0.0),)


def test_a_price_in_an_unknown_unit_is_refused() -> None:
    with pytest.raises(PriceApiError, match="priced per Mbit, not per GB or"):
        Prices().add_rule(VIRGINIA, "internet", [(0.0, 0.09)], Origin("refreshed", "", ""), unit="Mbit")


def test_links_to_other_servers_are_refused() -> None:
    base = "https://prices.azure.com/api/retail/prices"
    assert same_host(base, "https://prices.azure.com:443/api/retail/prices?$skip=100").endswith("$skip=100")
    assert same_host(base, "/other") == "https://prices.azure.com/other"
    for link in ("http://prices.azure.com/api", "https://prices.azure.com.evil.invalid/", "//evil.invalid/"):
        with pytest.raises(PriceApiError):
            same_host(base, link)


def test_unknown_regions_are_refused_before_any_request(server: PriceServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown region aws:us-eest-1"):
        fetch_prices(server, tmp_path, regions=(Region("aws", "us-eest-1"),))
    with pytest.raises(UsageError, match="is not a region of gcp"):
        fetch_prices(server, tmp_path, "gcp", regions=(VIRGINIA,))
    assert not server.asked


@pytest.fixture
def at_home(server: PriceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirect the command line to the local server and to a catalog in the test's folder."""
    monkeypatch.delenv("TRADEWIND_GCP_API_KEY", raising=False)
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(tmp_path))
    endpoints = Endpoints(server.url, f"{server.url}/api/retail/prices", server.url)
    monkeypatch.setattr("tradewind.catalog.refresh.run.ENDPOINTS", endpoints)
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    return tmp_path / "catalog"


def test_the_command_reports_what_it_imported(
    server: PriceServer, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.serve_aws(server)
    serve_azure(server)
    assert main(["catalog", "refresh"]) == 0
    out, err = capsys.readouterr()
    assert "aws: 3 egress prices and 0 machine prices of 1 region," in out
    assert "azure: 5 egress prices and 2 machine prices of 2 regions" in out
    assert "gcp was skipped: it needs an API key in TRADEWIND_GCP_API_KEY" in err
    assert main(["catalog", "show", "aws:us-east-1", "aws:us-east-2"]) == 0
    assert "refreshed, AWS Price List, AWSDataTransfer" in capsys.readouterr().out


def test_one_provider_that_fails_does_not_stop_the_others(
    server: PriceServer, at_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_azure(server)
    assert main(["catalog", "refresh", "--json"]) == 1
    overrides = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {document["provider"]: document["error"] is None for document in overrides} == {
        "aws": False,
        "azure": True,
        "gcp": False,
    }
    assert (at_home / "refreshed-azure.csv").exists()


def test_being_offline_is_reported_in_one_line_and_changes_nothing(
    at_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with price_server() as gone:
        address = gone.url
    monkeypatch.setattr("tradewind.catalog.refresh.run.ENDPOINTS", Endpoints(address, address, address))
    assert main(["catalog", "refresh"]) == 5
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "aws" in errors[0]
    assert "azure" in errors[0]
    assert "Connection refused" in errors[0]
    assert not at_home.exists()


def test_a_configured_proxy_is_used(
    server: PriceServer, at_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain proxy is asked for the full URL. Ours answers like the API."""
    server.routes["/prices"] = recorded.azure_page([recorded.bandwidth_item(0.25)])
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr("tradewind.catalog.refresh.run.ENDPOINTS", Endpoints(azure="http://prices.invalid/prices"))
    assert main(["catalog", "refresh", "--provider", "azure"]) == 0
    assert server.asked["/prices"] == 4


def test_options_are_refused_with_other_actions(at_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "show", "--region", "aws:us-east-1"]) == 2
    assert main(["catalog", "refresh", "aws:us-east-1"]) == 2
    assert main(["catalog", "refresh", "--date", "2025-01-01"]) == 2
    assert "did you mean --region aws:us-east-1?" in capsys.readouterr().err
