"""Progress and report as a person reads them."""

from tradewind.model.event import HopActivity, Progress, Summary
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.transfer.progress import ProgressLines, plain_line
from tradewind.transfer.report import plan_lines, summary_lines

PROGRESS = Progress(
    listed=True,
    objects_total=2000,
    bytes_total=4_000_000_000,
    objects_done=1000,
    bytes_done=1_000_000_000,
    objects_failed=1,
    retries=2,
    bytes_per_s=100_000_000,
    elapsed_s=10.0,
    cost_usd=0.125,
    hops=(HopActivity("lead → src → dst", 400_000_000), HopActivity("lead → src → r → dst", 600_000_000, False)),
)


def test_two_lines_and_the_busiest_hops() -> None:
    lines = ProgressLines().update(PROGRESS)
    assert lines == [
        "1,000/2,000 objects   1.00 GB/4.00 GB",
        "100 MB/s   30.0 s left   $0.12   1 error   2 retries",
        "  lead → src → r → dst  down",
        "  lead → src → dst      40.0 MB/s",
    ]


def test_while_listing_totals_are_at_least() -> None:
    line = plain_line(Progress(objects_total=10, bytes_total=5, elapsed_s=2.0))
    assert line == "0/≥10 objects 0 B/≥5 B, 0 B/s 2.0 s $0.00 0 errors"


def test_in_one_process_there_are_no_hops_to_show() -> None:
    assert len(ProgressLines().update(Progress(hops=(HopActivity("local"),)))) == 2


def test_the_end_says_all() -> None:
    summary = Summary(
        "some_failed",
        PROGRESS,
        objects_deleted=3,
        proofs={"crc64nvme → crc64nvme": 990, "length → read-back": 10, "earlier run": 1},
    )
    assert summary_lines(summary, priced()) == [
        "moved   1,000 objects, 1.00 GB in 10.0 s (100 MB/s), 2 retries",
        "also    3 deleted, 1 failed",
        "proven  990 by CRC64NVME on both sides, 10 by length at the source, reading back at the destination, "
        "1 in an earlier run",
        "cost    $0.10 predicted, $0.12 actual",
    ]


def priced() -> Plan:
    gateways = tuple(PlannedGateway(name) for name in ("lead", "a", "b"))
    return Plan(gateways, (PlannedHop("a", "b", 1),), (PlannedRoute(("a", "b"), 1.0, 0.1),))


def test_two_lines_before_the_start() -> None:
    assert plan_lines("cp", "a", ("b", "c"), local_plan()) == [
        "copy    a → b, c",
        "via     this machine, no gateways in between; $0.00 per GB",
    ]
    assert plan_lines("mv", "a", ("b",), priced())[1] == "via     3 gateways (0 relaying) on 1 route; $0.100 per GB"
