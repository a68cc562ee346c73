"""Progress and report as readable text."""

from dataclasses import replace

from tradewind.engine.report import ProgressLines, plain_line, plan_lines, saved_lines, summary_lines
from tradewind.engine.result import outcome_error
from tradewind.model.event import HopActivity, Outcome, Progress, Summary
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.model.units import format_usd

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
        "100 MB/s   30.0 s left   $0.125   1 error   2 retries",
        "  lead → src → r → dst  down",
        "  lead → src → dst      40.0 MB/s",
    ]


def test_while_listing_totals_are_at_least() -> None:
    line = plain_line(Progress(objects_total=10, bytes_total=5, elapsed_s=2.0))
    assert line == "0/≥10 objects 0 B/≥5 B, 0 B/s 2.0 s 0 errors"


def test_in_one_process_there_are_no_hops_to_show() -> None:
    assert len(ProgressLines().update(Progress(hops=(HopActivity("local"),)))) == 2


def test_the_summary_is_complete() -> None:
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
        "cost    $0.10 predicted, $0.125 metered",
    ]


def test_a_resumed_job_has_the_rate_of_its_own_run() -> None:
    progress = Progress(
        listed=True,
        objects_total=10,
        objects_done=10,
        bytes_done=1_000_000_000,
        bytes_earlier=900_000_000,
        bytes_per_s=10_000_000,
        elapsed_s=10.0,
    )
    lines = summary_lines(Summary("done", progress), local_plan())
    assert lines[:2] == [
        "moved   10 objects, 1.00 GB in 10.0 s (10.0 MB/s), 0 retries",
        "also    900 MB of it in earlier runs",
    ]


def priced() -> Plan:
    gateways = tuple(PlannedGateway(name) for name in ("lead", "a", "b"))
    return Plan(gateways, (PlannedHop("a", "b", 1),), (PlannedRoute(("a", "b"), 1.0, 0.1),))


def test_what_was_not_sent_has_a_line_with_the_ratio_of_each_means() -> None:
    route = HopActivity("a → b", 10**9, saved_bytes=700_000_000, deduplicated_bytes=500_000_000)
    both = saved_lines(replace(PROGRESS, hops=(route,)))
    assert both == ["saved   500 MB by deduplication (ratio 0.50), 200 MB by compression (ratio 0.60), of 1.00 GB"]
    alone = saved_lines(replace(PROGRESS, hops=(replace(route, deduplicated_bytes=0),)))
    assert alone == ["saved   700 MB by compression (ratio 0.30), of 1.00 GB"]
    assert saved_lines(replace(PROGRESS, hops=(HopActivity("a → b", 10**9),))) == []


def test_two_lines_before_the_start() -> None:
    assert plan_lines("cp", "a", ("b", "c"), local_plan()) == [
        "copy    a → b, c",
        "via     this machine, no gateways in between",
    ]
    elsewhere = replace(local_plan(), gateways=(PlannedGateway("local", "aws:us-east-1"),))
    assert plan_lines("cp", "a", ("b",), elsewhere) == ["copy    a → b"], "it lists before it has a plan"
    assert plan_lines("mv", "a", ("b",), priced())[1] == "via     2 gateways (0 relaying) on 1 route; $0.10 per GB"
    free = replace(priced(), routes=(PlannedRoute(("a", "b"), 1.0),))
    assert plan_lines("mv", "a", ("b",), free)[1] == "via     2 gateways (0 relaying) on 1 route"


def test_the_start_says_where_the_store_copies_by_itself() -> None:
    def via(destinations: int, copied: int) -> str:
        names = tuple(str(number) for number in range(destinations))
        return plan_lines("cp", "a", names, local_plan(), copied_by_store=copied)[1]

    assert via(1, 1) == "via     the store, which copies by itself; this machine only where the store refuses"
    assert via(2, 1) == "via     this machine; to 1 of 2 destinations the store copies by itself"
    assert via(2, 0) == "via     this machine, no gateways in between"


def test_a_ceiling_is_shown_as_the_maximum_cost() -> None:
    words = plan_lines("cp", "a", ("b",), priced(), 0.002)[1]
    assert words == "via     2 gateways (0 relaying) on 1 route; at most $0.002 per GB, by --max-cost"
    assert "; $0.10 per GB" in plan_lines("cp", "a", ("b",), priced(), 0.2)[1]
    assert summary_lines(Summary("done", PROGRESS), priced(), 0.002)[-1] == "cost    $0.002 predicted, $0.125 metered"


def test_a_free_transfer_has_no_cost_line() -> None:
    lines = summary_lines(Summary("done", replace(PROGRESS, cost_usd=0.0)), local_plan())
    assert not [line for line in lines if line.startswith("cost")]


def test_small_amounts_keep_significant_digits() -> None:
    amounts = [12.345, 0.05, 0.001, 0.00042, 0.0000015]
    assert [format_usd(amount) for amount in amounts] == ["$12.35", "$0.05", "$0.001", "$0.00042", "$0.0000015"]


def test_the_error_of_a_job_counts_its_objects_and_names_what_they_have_in_common() -> None:
    def words(outcome: Outcome) -> str:
        summary = Summary(outcome, replace(PROGRESS, objects_failed=2, objects_total=3))
        return str(outcome_error("job-1", summary, over_ceiling=False, can_be_resumed=False))

    assert words("some_failed") == "2 of 3 objects failed"
    assert words("unauthorised") == "2 of 3 objects failed: not authorised"
    assert words("unavailable") == "2 of 3 objects failed: only temporary errors"
    assert words("mismatch") == "2 of 3 objects failed: bytes did not match"
