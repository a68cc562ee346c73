"""Several destinations from Python: figures, text, pictures, and alternatives."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any
from xml.etree import ElementTree

import pytest

import tradewind
from tests.render.small_world import OSAKA, SEATTLE, TOKYO, TORONTO, small_world
from tradewind.errors import UsageError
from tradewind.render.tree_words import tree_lines

SVG = "{http://www.w3.org/2000/svg}"
SOURCE, DESTINATIONS = str(TORONTO), [str(TOKYO), str(SEATTLE)]


def planned(**goal: Any) -> tradewind.MulticastPlan:
    return tradewind.plan(SOURCE, DESTINATIONS, volume_gb=50, max_vms=2, catalog=small_world(), **goal)


def test_a_list_of_destinations_gives_trees() -> None:
    plan = planned(goal="fastest")
    assert plan.destinations == (TOKYO, SEATTLE)
    assert sum(tree.share for tree in plan.trees) == pytest.approx(1.0)
    assert plan.throughput_gbps == pytest.approx(sum(tree.gbps for tree in plan.trees))
    assert plan.cost.total_usd == pytest.approx(plan.cost.egress_usd + plan.cost.machines_usd)
    assert plan.overlay.copies == {SEATTLE: 2}, "Seattle also forwards the bytes that it keeps"
    assert plan.to_document()["destinations"] == DESTINATIONS
    for name in ("overlay", "cost", "trees", "no_such_figure"):
        with pytest.raises(FrozenInstanceError):
            setattr(plan, name, 1.0)


def test_it_is_compared_with_direct_copies_and_separate_plans() -> None:
    plan = planned(goal="fastest")
    itself, *others = plan.compare()
    assert itself.cost_usd == plan.cost.total_usd
    assert [way.name for way in others] == ["direct to each, at once", "2 plans, one per destination"]
    assert all(way.average_gbps <= plan.throughput_gbps * (1 + 1e-9) for way in others)


def test_the_average_rate_of_sequential_plans_includes_waiting() -> None:
    plan = tradewind.plan(SOURCE, [str(TOKYO), str(OSAKA)], volume_gb=50, max_vms=1, catalog=small_world())
    separate = plan.compare()[-1]
    assert "one after another" in separate.remark
    assert separate.average_gbps == pytest.approx(8 * 50 / separate.time_s)
    assert separate.average_gbps < separate.throughput_gbps


def test_words_fit_a_terminal_and_mark_destinations_and_copies() -> None:
    plan = planned(goal="fastest")
    lines = repr(plan).splitlines()
    assert lines[:2] == [f"{SOURCE} → {', '.join(DESTINATIONS)}", "50.0 GB to each: fastest at any cost"]
    assert any(line.endswith("azure:westus2 ● ×2") for line in lines)
    assert any(line.endswith("gcp:asia-northeast1 ●") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert plan.explain().lstrip().startswith("limits")


def test_small_trees_are_counted_instead_of_listed() -> None:
    plan = planned(goal="fastest").overlay
    (tree,) = plan.trees
    many = replace(plan, trees=(replace(tree, share=0.52), *[replace(tree, share=0.06)] * 8))
    lines = tree_lines(many)
    assert sum(line.endswith("azure:westus2 ● ×2") for line in lines) == 6
    assert any("18.0%" in line and "3 more trees; --json has all" in line for line in lines)


def test_a_source_that_sends_twice_is_shown_as_copying() -> None:
    plan = tradewind.plan(SOURCE, [str(OSAKA), str(SEATTLE)], volume_gb=50, max_vms=1, catalog=small_world())
    assert plan.overlay.copies == {TORONTO: 2}
    assert f"      {TORONTO} ×2" in repr(plan).splitlines()


def test_a_notebook_gets_map_and_tables() -> None:
    html = planned(goal="fastest")._repr_html_()
    shown = "".join(ElementTree.fromstring(html).itertext())
    for words in ("bytes are copied here", "2 plans, one per destination", "direct to each, at once", "Limited by"):
        assert words in shown


def test_the_frontier_shows_the_alternatives() -> None:
    frontier = tradewind.frontier(SOURCE, DESTINATIONS, volume_gb=50, max_vms=2, catalog=small_world())
    assert frontier.proven
    rate_gbps = frontier.throughput_gbps(frontier.points[-1][0])
    assert rate_gbps == pytest.approx(planned(goal="fastest").throughput_gbps, rel=1e-6)
    words = [text.text for text in ElementTree.fromstring(frontier.plot().svg).iter(f"{SVG}text")]
    assert words[0] == f"{SOURCE} → {', '.join(DESTINATIONS)}"
    assert "2 plans, one per destination" in words
    assert "direct to each, at once" in words


@pytest.mark.parametrize("few", [[], [str(TOKYO)]])
def test_a_list_has_at_least_two_destinations(few: list[str]) -> None:
    with pytest.raises(UsageError, match="at least two") as refused:
        tradewind.plan(SOURCE, few, volume_gb=50, catalog=small_world())
    assert refused.value.hint == "pass a single destination as a string"
    with pytest.raises(UsageError, match="at least two"):
        tradewind.frontier(SOURCE, few, volume_gb=50, catalog=small_world())
