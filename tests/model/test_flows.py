"""Flows files are read completely, and errors name file, table and key."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import ConfigError, UsageError
from tradewind.model.flows import flows_from_document, parse_address, read_flows
from tradewind.model.region import Region

pytest.importorskip("tomllib")

FILE = """\
budget = "5 USD"
period = "1d"
regions = ["aws:us-east-1"]
machine_time = "6h"
max_instances = 2
pool = 9
window = "3 MB"

[[flow]]
name = "backup"
source = "aws:us-east-1"
destination = "backup.example.org:443"
destination_at = [1.35, 103.8]
destination_rate = "1Gbit/s"
size = "2 GB"
every = "6h"

[[flow]]
name = "images"
source = "registry.example.org:443"
source_rtt_ms = {"aws:us-east-1" = 20}
destination = "here"
destination_region = "aws:eu-west-1"
rtt_ms = 190
loss = 0.001
congestion_control = "reno"
sizes = [{size = "400 MB", count = 10}, {size = "1 MB"}]
way_in = "socks5"
listen = "127.0.0.1:1080"
"""


def flow(**changes: Any) -> dict[str, Any]:
    entry = {"name": "f", "source": "a.example:1", "destination": "b.example:2", "size": "1 GB", **changes}
    return {key: value for key, value in entry.items() if value is not None}


def document(*flows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"budget": "5 USD", "flow": list(flows) or [flow()], **changes}


def test_a_file_is_read_with_its_amounts(tmp_path: Path) -> None:
    path = tmp_path / "flows.toml"
    path.write_text(FILE)
    flows = read_flows(path)
    assert (flows.budget_usd, flows.period_s, flows.machine_s, flows.max_instances) == (5, 86_400, 21_600, 2)
    assert flows.pool == 9
    assert (flows.regions, flows.window_bytes) == ((Region("aws", "us-east-1"),), 3_000_000)
    backup, images = flows.flows
    assert (backup.times, backup.period_bytes, backup.destination.rate_mbps) == (4, 8e9, 1000)
    assert (backup.source.region, backup.source.address) == (Region("aws", "us-east-1"), None)
    assert (backup.destination.address, backup.destination.at) == (("backup.example.org", 443), (1.35, 103.8))
    assert (images.transfers, images.period_bytes, images.way_in) == (11, 4_001_000_000, "socks5")
    assert images.destination.is_here
    assert images.source.rtt_ms == {Region("aws", "us-east-1"): 20}
    assert (images.rtt_ms, images.loss, images.congestion_control) == (190, 0.001, "reno")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"flow": [flow()]}, "flows.toml: budget is missing"),
        (document(budget="5"), "flows.toml: budget: an amount of money needs"),
        (document(budget=5), "flows.toml: budget must be text, not 5"),
        (document(period="0s"), "flows.toml: period must be more than 0"),
        (document(machine_time="60d"), "flows.toml: machine_time must be more than 0 and at most the period"),
        (document(budgets="1 USD"), "flows.toml: unknown key 'budgets'"),
        (document(regions=["us-east-1"]), "flows.toml: regions: 'us-east-1' is not a region"),
        ({"budget": "5 USD"}, "flows.toml: there is no flow"),
        (document(flow(), flow()), "flows.toml: two flows are called 'f'"),
        (document(flow(name=None)), "flows.toml: flow 1: name is missing"),
        (document(flow(), flow(name="g", size="2")), "flows.toml: flow 2 (g): size: a size needs a number and a unit"),
        (document(flow(size=None)), "flows.toml: flow 1 (f): needs either size or sizes"),
        (document(flow(size=None, sizes=[{"size": "0B"}])), "flow 1 (f): sizes 1: size: a size must be more than zero"),
        (document(flow(every="60d")), "flow 1 (f): every must be a time that fits"),
        (document(flow(loss=1.5)), "flow 1 (f): loss must be a number from 0 to 0.1, not 1.5"),
        (document(flow(source_at=[100, 0])), "flow 1 (f): source_at must be a number from -90 to 90, not 100"),
        (document(flow(source_rtt_ms={"x": 1})), "flow 1 (f): source_rtt_ms: 'x' is not a region"),
        (document(flow(congestion_control="vegas")), "congestion_control must be one of reno, cubic, bbr"),
        (document(flow(source="aws:eu-west-1", source_region="aws:eu-west-1")), "source is a region already"),
        (document(flow(destination="a.example:1")), "source and destination are both 'a.example:1'"),
        (document(flow(listen="127.0.0.1")), "listen must be HOST:PORT"),
        (
            document(flow(listen="127.0.0.1:0")),
            "flow 1 (f): listen: '127.0.0.1:0' has no port from 1 to 65535",
        ),
    ],
)
def test_an_error_names_file_table_and_key(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        flows_from_document(table, "flows.toml")
    assert words in str(raised.value)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_flows(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("budget = ")
    with pytest.raises(ConfigError, match=r"bad\.toml: "):
        read_flows(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a.example:443", ("a.example", 443)),
        ("a.example", ("a.example", None)),
        ("[2001:db8::7]:80", ("2001:db8::7", 80)),
    ],
)
def test_an_address_is_split(text: str, address: tuple[str, int | None]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["a:0", "a:65536", "a:x", ":1", "http://a:1", "[::1:80", "a b:1", "a:²"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


words = st.text("ab:1. ", max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.sampled_from(["1 GB", "aws:x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    ["name", "source", "destination", "size", "sizes", "source_at", "source_rtt_ms", "every", "loss"]
)


@given(st.dictionaries(keys, values), st.dictionaries(st.sampled_from(["budget", "period", "regions", "flow"]), values))
def test_any_table_is_read_or_refused_in_one_line(entry: dict[str, Any], top: dict[str, Any]) -> None:
    try:
        flows_from_document({**document({**flow(), **entry}), **top}, "flows.toml")
    except ConfigError as error:
        assert "\n" not in str(error).replace("\\n", "")
