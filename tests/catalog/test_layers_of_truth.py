"""The figure that counts, by layer (measured, learned, imported, modelled) and by age."""

from __future__ import annotations

import datetime

import pytest

from tradewind.catalog.ageing import HALF_LIFE_DAYS, WEIGHT_MIN, Figure, age_weight, layered
from tradewind.model.origin import Origin, OriginKind

TODAY = datetime.date(2026, 11, 21)


def figure(kind: OriginKind, gbps: float, age_days: float = 0, *, at_least: bool = False) -> Figure:
    date = (TODAY - datetime.timedelta(days=age_days)).isoformat()
    return Figure(gbps, Origin(kind, "a test", date), at_least=at_least)


MODEL = Figure(10.0, Origin("modelled", "a test", "2020-01-01"))


def test_the_weight_of_a_figure_halves_per_half_life_and_ends_at_zero() -> None:
    weights = [age_weight(figure("learned", 1, days).origin.date, TODAY) for days in (0, 180, 360, 597, 598, 5000)]
    assert weights == pytest.approx([1, 0.5, 0.25, 0.1, 0, 0], abs=1e-3)
    assert weights[3] >= WEIGHT_MIN
    assert weights[4] == 0


def test_a_figure_without_a_date_or_from_the_future_does_not_age() -> None:
    assert age_weight("", TODAY) == 1
    assert age_weight("2027-01-01", TODAY) == 1


@pytest.mark.parametrize("kind", ["measured", "learned", "imported", "published"])
def test_fresh_figures_count_alone_and_old_ones_are_blended_with_the_model(kind: OriginKind) -> None:
    assert layered([MODEL, figure(kind, 4.0)], TODAY).gbps == 4.0
    assert layered([MODEL, figure(kind, 4.0, HALF_LIFE_DAYS)], TODAY).gbps == pytest.approx(7.0)
    link = layered([MODEL, figure(kind, 4.0, 600)], TODAY)
    assert (link.gbps, link.origin.kind) == (10.0, "modelled")
    assert [(part.origin.kind, part.weight) for part in link.parts] == [(kind, 0.0), ("modelled", 1.0)]


def test_the_higher_layer_wins_in_any_order() -> None:
    figures = [figure("measured", 1.0), figure("learned", 2.0), figure("imported", 3.0), MODEL]
    for shuffled in (figures, figures[::-1]):
        link = layered(shuffled, TODAY)
        assert (link.gbps, link.origin.kind) == (1.0, "measured")
        assert [part.origin.kind for part in link.parts] == ["measured", "learned", "imported", "modelled"]


def test_an_old_measurement_is_blended_with_a_fresh_lesson_below_it() -> None:
    link = layered([MODEL, figure("learned", 4.0), figure("measured", 8.0, 360)], TODAY)
    assert link.gbps == pytest.approx(0.25 * 8 + 0.75 * 4)
    assert link.origin.kind == "learned"
    assert sum(part.weight for part in link.parts) == pytest.approx(1)


def test_the_layer_below_a_too_old_figure_counts_again() -> None:
    link = layered([MODEL, figure("imported", 6.0, 10), figure("learned", 1.0, 700)], TODAY)
    assert link.gbps == layered([MODEL, figure("imported", 6.0, 10)], TODAY).gbps


def test_the_lowest_layer_counts_at_any_age() -> None:
    link = layered([figure("imported", 6.0, 5000)], TODAY)
    assert (link.gbps, link.parts) == (6.0, ())


def test_a_lower_bound_raises_and_never_lowers() -> None:
    assert layered([MODEL, figure("learned", 4.0, at_least=True)], TODAY).gbps == 10.0
    assert layered([MODEL, figure("learned", 14.0, at_least=True)], TODAY).gbps == 14.0


def test_the_round_trip_is_from_the_highest_layer_that_has_one() -> None:
    timed = Figure(5.0, Origin("imported", "ping", "2026-11-01"), 42.0)
    link = layered([MODEL, timed, figure("learned", 3.0)], TODAY)
    assert link.rtt_ms == 42.0
    assert link.rtt_origin == timed.origin
