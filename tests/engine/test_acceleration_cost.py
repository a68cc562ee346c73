"""The cost of an acceleration: machines from launch to end, egress over replaced machines, and the ceiling."""

import pytest

from tradewind.engine.acceleration_cost import AccelerationMeter
from tradewind.model.ledger import MachinePrice

GB = 1_000_000_000


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_machines_and_egress_are_counted_and_leave_less_time() -> None:
    clock = Clock()
    meter = AccelerationMeter({"aws:a": MachinePrice(0.01)}, {"aws:a": 0.5}, 2.0, clock)
    meter.launched("f", "p", "aws:a")
    meter.launched("f", "p", "aws:a")
    clock.now_s = 50.0
    assert meter.machines_usd == pytest.approx(0.5)
    assert meter.left_s(1e6) == pytest.approx(150)
    assert meter.sent("p", "aws:a", GB) == 0.5
    assert meter.left_s(1e6) == pytest.approx(1.0 / 0.02)
    more = MachinePrice(0.02, billed_s_min=40.0)
    assert meter.left_s(1e6, [more]) == pytest.approx(1.0 / 0.04)
    assert meter.left_s(1e6, [MachinePrice(0.02, billed_s_min=51.0)]) == 0.0, "its minimum time costs too much"
    meter.ended("f", {"p"}, 10.0)
    assert meter.machines_usd == pytest.approx(0.4)
    meter.launched("f", "p", "aws:a")
    assert meter.sent("p", "aws:a", GB // 2) == 0.75, "a new machine counts from zero"
    meter.refused("f", {"p"})
    clock.now_s = 1000.0
    assert meter.machines_usd == pytest.approx(0.4)
    assert meter.egress_usd == 0.75
    lines = meter.ledger.lines(meter.ledger.heartbeat_s)
    assert sorted((line.kind, line.what, line.unit, line.unit_usd) for line in lines) == [
        ("egress", "p in aws:a", "GB", 0.5),
        ("machine", "p in aws:a", "s", 0.01),
    ]
    assert sorted(line.quantity for line in lines) == pytest.approx([1.5, 40.0])
    assert sum(line.usd for line in lines) == pytest.approx(meter.machines_usd + meter.egress_usd)


def test_without_a_ceiling_there_is_no_end() -> None:
    assert AccelerationMeter({}, {}, None).left_s(900) == 900


def test_a_new_machine_that_has_sent_as_much_as_the_former_one_is_counted() -> None:
    meter = AccelerationMeter({}, {"aws:a": 1.0}, None)
    meter.sent("p", "aws:a", GB)
    meter.renewed("p")
    assert meter.proxy_usd("p") == 1.0
    assert meter.sent("p", "aws:a", GB) == 2.0


def test_a_proxy_that_does_not_answer_is_assumed_to_send_until_its_machine_or_its_lease_ends() -> None:
    clock = Clock()
    meter = AccelerationMeter({"aws:a": MachinePrice(0.0)}, {"aws:a": 1.0}, 10.0, clock, lease_s=6.0)
    for name in ("p", "q"):
        meter.launched("f", name, "aws:a")
    clock.now_s = 1.0
    meter.sent("p", "aws:a", GB)
    assert meter.left_s(1e6) == pytest.approx(9.0)
    for clock.now_s in (2.0, 3.0, 4.0, 5.0):
        meter.sent("q", "aws:a", 0)
    assert meter.left_s(1e6) == pytest.approx(5.0)
    meter.sent("p", "aws:a", GB)
    assert meter.left_s(1e6) == 1e6, "it has sent nothing meanwhile"
    clock.now_s = 6.0
    meter.sent("p", "aws:a", 2 * GB)
    clock.now_s = 11.0
    assert meter.left_s(1e6) == pytest.approx(3.0)
    clock.now_s = 12.0
    assert meter.left_s(1e6) == 1e6, "its lease of 6 s is over"
    clock.now_s = 11.0
    meter.ended("f", {"p"})
    assert meter.left_s(1e6) == 1e6, "its machine has ended"


def test_a_burst_between_two_close_looks_is_no_rate() -> None:
    clock = Clock()
    meter = AccelerationMeter({"aws:a": MachinePrice(0.0)}, {"aws:a": 1.0}, 10.0, clock)
    meter.launched("f", "p", "aws:a")
    for clock.now_s, sent_bytes in ((1.0, GB), (1.1, 2 * GB)):
        meter.sent("p", "aws:a", sent_bytes)
    assert meter.left_s(1e6) == pytest.approx(8.0)
