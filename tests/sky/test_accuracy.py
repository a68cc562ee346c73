"""The emulator matches the network of its file. A run during which it was late is repeated, then skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from testbed.sky import GOODPUT_PER_WIRE, ping, send, sink, valid
from tests.sky.conftest import Make
from tradewind.errors import SkyInvalid
from tradewind.sky.running import Sky

pytestmark = pytest.mark.alone

T = TypeVar("T")

REGIONS = {"site:a": {"name": "a"}, "site:b": {"name": "b"}, "site:c": {"name": "c"}}
RATE_ERROR_MAX = 0.04


def measured(sky: Sky, measure: Callable[[], T]) -> T:
    try:
        return valid(sky, measure)
    except SkyInvalid as error:
        pytest.skip(f"this host is too busy: {error}")


def between(a: str, b: str, rtt_ms: float, rate: str, **rest: object) -> dict[str, object]:
    return {"between": [f"site:{a}", f"site:{b}"], "rtt_ms": rtt_ms, "rate": rate, **rest}


@pytest.mark.parametrize(
    "rtt_ms", [1, pytest.param(20, marks=pytest.mark.slow), 90, pytest.param(250, marks=pytest.mark.slow)]
)
def test_round_trips(make_sky: Make, rtt_ms: float) -> None:
    sky = make_sky(REGIONS, [between("a", "b", rtt_ms, "100Mbit/s")])
    with sink(sky, "b-1") as address:
        found = measured(sky, lambda: ping(sky, "a-1", address))
    assert abs(found["median_ms"] - rtt_ms) <= max(2.0, 0.03 * rtt_ms)


@pytest.mark.parametrize(
    ("rate_mbps", "connections"), [(10, 1), (100, 8), pytest.param(400, 4, marks=pytest.mark.slow)]
)
def test_rates(make_sky: Make, rate_mbps: int, connections: int) -> None:
    sky = make_sky(REGIONS, [between("a", "b", 20, f"{rate_mbps}Mbit/s")])
    with sink(sky, "b-1") as address:
        found = measured(sky, lambda: send(sky, "a-1", address, connections=connections, seconds=4))
    assert found == pytest.approx(rate_mbps * GOODPUT_PER_WIRE, rel=RATE_ERROR_MAX)


def test_a_single_flow_moves_one_window_per_round_trip(make_sky: Make) -> None:
    sky = make_sky(REGIONS, [between("a", "b", 80, "100Mbit/s")])
    with sink(sky, "b-1", window_bytes=256 << 10) as address:
        found = measured(sky, lambda: send(sky, "a-1", address, seconds=4))
    assert found == pytest.approx((256 << 10) * 8 / 80e3, rel=0.08)


def test_a_cap_holds_over_all_links_of_a_machine(make_sky: Make) -> None:
    regions = {**REGIONS, "site:a": {"name": "a", "egress": "60Mbit/s"}}
    sky = make_sky(regions, [between("a", "b", 20, "50Mbit/s"), between("a", "c", 20, "50Mbit/s")])
    with sink(sky, "b-1") as one, sink(sky, "c-1") as other:
        found = measured(sky, lambda: both(sky, [("a-1", one), ("a-1", other)]))
    assert sum(found) == pytest.approx(60 * GOODPUT_PER_WIRE, rel=RATE_ERROR_MAX)


def test_machines_of_a_region_have_separate_capacities(make_sky: Make) -> None:
    regions = {"site:a": {"name": "a", "machines": 2}, "site:b": {"name": "b", "machines": 2}}
    sky = make_sky(regions, [between("a", "b", 20, "50Mbit/s")])
    with sink(sky, "b-1") as one, sink(sky, "b-2") as other:
        found = measured(sky, lambda: both(sky, [("a-1", one), ("a-2", other)]))
    assert found == pytest.approx([50 * GOODPUT_PER_WIRE] * 2, rel=RATE_ERROR_MAX)


def test_machines_of_a_region_share_its_capacity(make_sky: Make) -> None:
    regions = {"site:a": {"name": "a", "machines": 2}, "site:b": {"name": "b", "machines": 2}}
    sky = make_sky(regions, [between("a", "b", 20, "50Mbit/s")], shared_by="regions")
    with sink(sky, "b-1") as one, sink(sky, "b-2") as other:
        found = measured(sky, lambda: both(sky, [("a-1", one), ("a-2", other)]))
    assert sum(found) == pytest.approx(50 * GOODPUT_PER_WIRE, rel=RATE_ERROR_MAX)


@pytest.mark.slow
def test_loss_and_its_effect_on_tcp(make_sky: Make) -> None:
    sky = make_sky(REGIONS, [between("a", "b", 40, "100Mbit/s", loss=0.005)])
    with sink(sky, "b-1") as address:
        alone = measured(sky, lambda: send(sky, "a-1", address, seconds=6))
        together = measured(sky, lambda: send(sky, "a-1", address, connections=16, seconds=6))
        with_bbr = measured(sky, lambda: send(sky, "a-1", address, seconds=6, cc="bbr"))
        sky.reset_stats()
        send(sky, "a-1", address, connections=16, seconds=2)
    (path,) = (path for path in sky.stats().paths if path.src == "a-1")
    deviation = (path.packets * 0.005 * 0.995) ** 0.5
    assert abs(path.lost - path.packets * 0.005) < 6 * deviation
    # Why parallel connections matter (Skyplane, Fig. 9a): one cubic connection stays far below the link, many fill it.
    assert alone < 20 < 60 < together
    assert with_bbr > 60


def both(sky: Sky, pairs: list[tuple[str, str]]) -> list[float]:
    """Return the goodputs of concurrent senders."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(pairs)) as pool:
        found = [pool.submit(send, sky, machine, to, connections=4, seconds=5) for machine, to in pairs]
        return [each.result() for each in found]
