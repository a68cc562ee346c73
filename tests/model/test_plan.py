import pytest

from tradewind.errors import TopologyError
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan


def plan(
    *routes: PlannedRoute,
    names: tuple[str, ...] = ("lead", "a", "r", "b"),
    hops: tuple[PlannedHop, ...] | None = None,
) -> Plan:
    if hops is None:
        pairs = dict.fromkeys(pair for route in routes for pair in zip(route.nodes, route.nodes[1:], strict=False))
        hops = tuple(PlannedHop(*pair, 8) for pair in pairs)
    return Plan(tuple(PlannedGateway(name) for name in names), hops, routes)


def test_the_mean_price_follows_the_shares() -> None:
    made = plan(PlannedRoute(("a", "b"), 0.5, 0.01), PlannedRoute(("a", "r", "b"), 0.25, 0.04))
    assert made.mean_usd_per_gb == pytest.approx(0.02)


def test_the_local_plan_has_no_hops() -> None:
    assert local_plan().stations() == ()
    assert local_plan().lead == "local"


@pytest.mark.parametrize(
    ("routes", "hops", "complaint"),
    [
        ((), (), "routes"),
        ((PlannedRoute(("a",), 1),), (), "needs a source and a sink"),
        ((PlannedRoute(("a", "x"), 1),), None, "no gateway 'x'"),
        ((PlannedRoute(("a", "r", "a"), 1),), None, "visits a gateway twice"),
        ((PlannedRoute(("a", "b"), 0),), None, "share"),
        ((PlannedRoute(("a", "b"), 1.5),), None, "share"),
        ((PlannedRoute(("a", "b"), 1, -1),), None, "price"),
        ((PlannedRoute(("a", "b"), 1),), (), "no hop a → b"),
        ((PlannedRoute(("a", "b"), 1),), (PlannedHop("a", "b", 65),), "connections"),
        ((PlannedRoute(("a", "b"), 1),), (PlannedHop("a", "b", 1), PlannedHop("a", "b", 2)), "two hops"),
        ((PlannedRoute(("a", "b"), 1),), (PlannedHop("a", "b", 1), PlannedHop("b", "r", 1)), "on no route"),
        ((PlannedRoute(("a", "b"), 1),), (PlannedHop("a", "b", 1), PlannedHop("lead", "b", 1)), "on no route"),
    ],
)
def test_invalid_plans_are_refused(
    routes: tuple[PlannedRoute, ...], hops: tuple[PlannedHop, ...] | None, complaint: str
) -> None:
    with pytest.raises(TopologyError, match=complaint):
        plan(*routes, hops=hops)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 64, "a/b", "A", "-a", "a-", "a\n"])
def test_names_fit_certificates(name: str) -> None:
    with pytest.raises(TopologyError, match="gateway name"):
        plan(PlannedRoute(("a", "b"), 1), names=("lead", "a", "b", name))


def test_a_plan_needs_its_lead() -> None:
    with pytest.raises(TopologyError, match="lead"):
        plan(PlannedRoute(("a", "b"), 1), names=("a", "b"))
