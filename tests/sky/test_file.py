"""Sky files: their content, and errors for mistakes. Needs no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import SkyFileError
from tradewind.sky.file import network_from_document, read_sky_file
from tradewind.sky.network import EmulatedNetwork

TWO: dict[str, Any] = {
    "regions": {"aws:us-east-1": {"machines": 2}, "azure:westus": {}},
    "links": [{"between": ["aws:us-east-1", "azure:westus"], "rtt_ms": 60, "rate": "1Gbit/s"}],
}


def network(**changes: Any) -> EmulatedNetwork:
    return network_from_document({**TWO, **changes}, Path())


def pipe_between(sky: EmulatedNetwork, src: str, dst: str) -> int:
    names = [machine.name for machine in sky.machines]
    return next(p.pipe for p in sky.paths if (names[p.src], names[p.dst]) == (src, dst))


def test_machines_have_names_and_addresses() -> None:
    machines = network().machines
    assert [(machine.name, machine.address) for machine in machines] == [
        ("aws-us-east-1-1", "10.77.1.1"),
        ("aws-us-east-1-2", "10.77.1.2"),
        ("azure-westus-1", "10.77.2.1"),
    ]
    assert {machine.congestion_control for machine in machines} == {"cubic"}


def test_a_region_may_refuse_connections_from_others() -> None:
    sky = network(regions={"aws:us-east-1": {"machines": 2, "inbound": False}, "azure:westus": {}})
    assert [machine.inbound for machine in sky.machines] == [False, False, True]
    assert [machine["inbound"] for machine in sky.document()["machines"]] == [False, False, True]


def test_the_scale_changes_rates_and_never_times() -> None:
    sky = network(scale=0.05, regions={"aws:us-east-1": {"egress": "5Gbit/s"}, "azure:westus": {}})
    there = pipe_between(sky, "aws-us-east-1-1", "azure-westus-1")
    assert sky.pipes[there].rate_bps == 50_000_000
    assert sky.machines[0].egress is not None
    assert sky.machines[0].egress.rate_bps == 250_000_000
    assert {path.delay_us for path in sky.paths} == {30_000}


def test_a_queue_is_as_long_as_the_round_trip() -> None:
    there = pipe_between(network(), "aws-us-east-1-1", "azure-westus-1")
    assert network().pipes[there].queue_bytes == 1e9 / 8 * 0.060
    longer = [{**TWO["links"][0], "queue_ms": 100}]
    assert network(links=longer).pipes[there].queue_bytes == 1e9 / 8 * 0.100


def test_sharing_of_pipes() -> None:
    regions = {"aws:us-east-1": {"machines": 2, "name": "a"}, "azure:westus": {"machines": 2, "name": "b"}}

    def pipes(shared_by: str) -> list[int]:
        sky = network(regions=regions, shared_by=shared_by)
        return [pipe_between(sky, src, dst) for src, dst in (("a-1", "b-1"), ("a-1", "b-2"), ("a-2", "b-1"))]

    assert len(set(pipes("pair"))) == 3
    first, second, other = pipes("machine")
    assert first == second != other
    assert len(set(pipes("regions"))) == 1
    local = network(regions=regions, shared_by="regions")
    assert pipe_between(local, "a-1", "a-2") != pipe_between(local, "a-2", "a-1")


def test_rates_and_round_trips_of_a_grid(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(
        "src,dst,sent_gbps,received_gbps\naws:us-east-1,azure:westus,3,2\nazure:westus,aws:us-east-1,3,1\ngcp:x,gcp:y,1,1\n"
    )
    (tmp_path / "rtts.csv").write_text(
        "src,dst,avg_rtt_ms\naws:us-east-1,azure:westus,70\nazure:westus,aws:us-east-1,71\n"
    )
    document = {"regions": TWO["regions"], "grid": {"rates": "rates.csv", "rtts": "rtts.csv"}, "links": []}
    file = tmp_path / "sky.json"
    file.write_text(json.dumps(document))
    sky = read_sky_file(file)
    assert sky.pipes[pipe_between(sky, "aws-us-east-1-1", "azure-westus-1")].rate_bps == 2_000_000_000
    assert sky.pipes[pipe_between(sky, "azure-westus-1", "aws-us-east-1-1")].rate_bps == 1_000_000_000
    # A link in the file overrides the grid, field by field.
    document["links"] = [{"from": "azure:westus", "to": "aws:us-east-1", "loss": 0.01}]
    file.write_text(json.dumps(document))
    over = read_sky_file(file)
    back = next(path for path in over.paths if path.src == 2 and path.dst == 0)
    assert (back.loss, back.delay_us, over.pipes[back.pipe].rate_bps) == (0.01, 35_500, 1_000_000_000)


def test_regions_without_a_link_cannot_reach_each_other() -> None:
    sky = network(links=[])
    assert {(path.src, path.dst) for path in sky.paths} == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regoins": {}}, "unknown entry 'regoins'"),
        ({"regions": {}}, "regions: between 1 and"),
        ({"regions": {"lab": {}}}, "'lab' is not a region"),
        ({"regions": {"site:a": {"machines": 0}}}, "machines: 0 is not between"),
        ({"regions": {"site:a": {"machines": 1.5}}}, "machines must be a whole number, not 1.5"),
        ({"regions": {"site:a": {"name": "A"}}}, "'A-1' is not a unique"),
        ({"regions": {"site:a": {"name": "x"}, "site:b": {"name": "x"}}}, "'x-1' is not a unique, valid name"),
        ({"regions": {"site:a": {"inbound": "no"}}}, "inbound must be true or false"),
        ({"regions": {"site:a": {"egress": 5}}, "links": []}, "a rate is a string"),
        ({"links": [{"between": ["aws:us-east-1", "azure:westus"], "rate": "1Gbit/s"}]}, "has no rtt_ms"),
        ({"links": [{"between": ["aws:us-east-1", "azure:westus"], "rtt_ms": 1}]}, "has no rate"),
        ({"links": [{"between": ["aws:us-east-1", "gcp:x"], "rtt_ms": 1}]}, "gcp:x is not in regions"),
        ({"links": [{"from": "aws:us-east-1", "rtt_ms": 1}]}, "needs either `between`, or `from` and `to`"),
        ({"links": [{**TWO["links"][0], "loss": 2}]}, "loss: 2 is not between"),
        ({"scale": 1e-6}, "after scaling is not between"),
        ({"shared_by": "all"}, "is not one of pair, machine, regions"),
        ({"congestion_control": "vegas"}, "is not one of cubic, bbr, reno"),
        ({"grid": {"rates": "nowhere.csv"}}, "nowhere.csv: no such file"),
    ],
)
def test_mistakes_are_reported(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SkyFileError, match=message):
        network(**changes)


def test_a_missing_or_invalid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SkyFileError, match="No such file"):
        read_sky_file(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(SkyFileError, match="not JSON"):
        read_sky_file(tmp_path / "bad.json")
    (tmp_path / "twice.json").write_text('{"regions": {"site:a": {}, "site:a": {"machines": 2}}}')
    with pytest.raises(SkyFileError, match="'site:a' appears twice"):
        read_sky_file(tmp_path / "twice.json")
