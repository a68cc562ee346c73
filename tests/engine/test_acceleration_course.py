"""The course of an acceleration: one change at a time, and an end within any step of it."""

from __future__ import annotations

from tradewind.engine.acceleration_course import (
    BLOCKED_REPLACEMENTS_MAX,
    BLOCKED_S,
    DEAD_PAUSE_MAX_S,
    DEAD_PAUSE_S,
    DRAIN_S,
    HOME_LOOKS_MAX,
    LEAVE_S,
    LIVING_EVERY_S,
    RESERVE_S,
    Answer,
    Ask,
    Close,
    Course,
    DrainHome,
    DrainProxies,
    EndAsked,
    Finished,
    Grow,
    Leaving,
    Looked,
    Place,
    Replace,
    Rewire,
    Say,
    Shrink,
    SwitchPaths,
)
from tradewind.model.acceleration import AccelerationWish

FINE = Looked(900.0)


def replanning(steps: int) -> Course:
    """A course after the first steps of a replan."""
    course = Course(0.0)
    assert course.handle(Looked(900.0, wish=AccelerationWish(3, flows="x")), 0.0) == [Place("x")]
    for action in [Grow(), SwitchPaths(), DrainProxies(DRAIN_S), Shrink()][:steps]:
        assert course.handle(Finished(), 1.0) == [action]
    return course


def test_a_replan_takes_one_step_after_the_other_and_is_answered_at_the_end() -> None:
    course = replanning(4)
    wish = Looked(900.0, wish=AccelerationWish(4))
    assert course.handle(wish, 2.0) == [], "the next one waits"
    assert course.handle(Finished(), 3.0) == [Answer(3)]
    assert course.handle(wish, 4.0) == [Place(None)]
    assert course.handle(Finished("no such region"), 5.0) == [Answer(4, "no such region")]
    assert course.handle(wish, 6.0) == [], "a refused wish is not repeated"


def test_the_ceiling_the_end_of_its_time_and_down_end_it_within_every_step() -> None:
    for steps in range(5):
        assert replanning(steps).handle(Looked(RESERVE_S), 2.0) == [DrainHome(DRAIN_S, "the ceiling is close")]
        assert replanning(steps).handle(Looked(900.0, is_over=True), 2.0) == [DrainHome(DRAIN_S, "its time is over")]
        course = replanning(steps)
        down = Looked(900.0, wish=AccelerationWish(4, down=True, drain_s=60.0))
        assert course.handle(down, 2.0) == [Answer(4), DrainHome(60.0, None)]
        assert course.handle(Finished("fleet f is closed"), 3.0) == []
        assert course.handle(FINE, 61.9) == []
        assert course.handle(FINE, 62.0) == [Close()]


def test_a_drain_ends_early_when_nothing_is_open_or_the_ceiling_is_near_or_the_user_interrupts() -> None:
    for event in (Looked(900.0, drained=True), Looked(20.0), Looked(900.0, home="gone", home_lives=False)):
        course = Course(0.0)
        course.handle(EndAsked(300.0, "interrupted"), 0.0)
        assert course.handle(FINE, 1.0) == []
        assert course.handle(event, 2.0) == [Close()]
    course = Course(0.0)
    course.handle(EndAsked(300.0, "interrupted"), 0.0)
    assert course.handle(EndAsked(0.0, "interrupted"), 2.0) == []
    assert course.handle(FINE, 2.0) == [Close()]


def test_machines_of_a_replan_that_cannot_be_wired_are_ended() -> None:
    course = replanning(2)
    assert course.handle(Finished("home refuses it"), 2.0) == [Shrink()]
    assert course.handle(Finished("no answer"), 3.0) == [
        Say("machines were not ended: no answer"),
        Answer(3, "home refuses it"),
    ]
    assert replanning(1).handle(Finished("no machine"), 2.0) == [Answer(3, "no machine")]


def test_a_dead_machine_is_replaced_and_a_living_one_is_asked_for_again() -> None:
    course, ill = Course(0.0), Looked(900.0, unhealthy=("a", "b"))
    assert course.handle(ill, 0.0) == [Ask(("a", "b"))]
    assert course.handle(Finished(), 0.0) == []
    assert course.handle(ill, LIVING_EVERY_S - 0.1) == []
    assert course.handle(ill, LIVING_EVERY_S) == [Ask(("a", "b"))]
    assert course.handle(Finished(names=("b",)), 6.0) == [Replace("b")]
    assert course.handle(Finished(), 7.0) == [Rewire("b"), Say("proxy b has a new machine")]
    course.handle(ill, 20.0)
    course.handle(Finished(names=("a",)), 20.0)
    assert course.handle(Finished("quota"), 21.0) == [Say("proxy a was not replaced: quota")]


def test_an_entrance_gets_another_gateway() -> None:
    """Its machine is a host of the user."""
    course, name = Course(0.0), "site-web-entrance"
    course.handle(Looked(900.0, unhealthy=(name,)), 0.0)
    assert course.handle(Finished(names=(name,)), 1.0) == [Replace(name)]
    assert course.handle(Finished(), 2.0) == [Rewire(name), Say(f"entrance {name} has a new gateway")]


def test_machines_that_end_soon_after_their_start_are_replaced_less_and_less_often() -> None:
    course, now_s, waited_s = Course(0.0), 0.0, []
    ill, begun_s = Looked(900.0, unhealthy=("a",)), 0.0
    while now_s < 86_400.0:
        if course.handle(ill, now_s) == [Ask(("a",))]:
            waited_s.append(now_s - begun_s)
            begun_s = now_s
            assert course.handle(Finished(names=("a",)), now_s) == [Replace("a")]
            said = course.handle(Finished(), now_s)[-1]
            assert isinstance(said, Say)
            assert ("the next one" in said.line) == (len(waited_s) > 1)
        now_s += LIVING_EVERY_S
    pauses = [min(DEAD_PAUSE_S * 2**number, DEAD_PAUSE_MAX_S) for number in range(len(waited_s) - 1)]
    assert waited_s == [0.0, *pauses]


def test_a_machine_that_worked_for_long_is_replaced_at_once() -> None:
    course, now_s = Course(0.0), 0.0
    ill = Looked(900.0, unhealthy=("a",))
    for _ in range(5):
        assert course.handle(ill, now_s) == [Ask(("a",))]
        assert course.handle(Finished(names=("a",)), now_s) == [Replace("a")]
        assert course.handle(Finished(), now_s) == [Rewire("a"), Say("proxy a has a new machine")]
        now_s += 2.0 * DEAD_PAUSE_MAX_S


def test_a_proxy_that_nothing_can_connect_to_gets_a_few_other_machines() -> None:
    course, now_s = Course(0.0), 0.0
    blocked, asked = Looked(900.0, unhealthy=("a",), blocked=("a",)), [Ask(("a",))]
    for number in range(BLOCKED_REPLACEMENTS_MAX):
        assert course.handle(blocked, now_s) == asked
        course.handle(Finished(), now_s)
        now_s += BLOCKED_S * 2**number
        said, replaced = course.handle(blocked, now_s)
        assert isinstance(said, Say) and "nothing can connect to" in said.line
        assert (replaced, course.replacing) == (Replace("a", is_alive=True), "a")
        assert course.handle(Finished(), now_s)[0] == Rewire("a")
        now_s += LIVING_EVERY_S
    for _ in range(3):
        now_s += 100 * BLOCKED_S
        assert course.handle(blocked, now_s) == asked, "the network may be at fault"
        course.handle(Finished(), now_s)


def test_a_machine_that_the_cloud_takes_back_is_replaced_when_its_connections_have_ended() -> None:
    for leaving in (Leaving("a", 90.0, is_drained=True), Leaving("a", LEAVE_S)):
        course = Course(0.0)
        assert course.handle(Looked(900.0, leaving=(Leaving("a", 90.0),)), 0.0) == [], "connections are open"
        said, replaced = course.handle(Looked(900.0, leaving=(leaving,)), 1.0)
        assert isinstance(said, Say) and "the cloud takes its present one back" in said.line
        assert (replaced, course.replacing) == (Replace("a", is_alive=True), "a")
        assert course.handle(Looked(900.0, leaving=(leaving,)), 2.0) == [], "one change at a time"
        assert course.handle(Finished(), 3.0) == [Rewire("a"), Say("proxy a has a new machine")]


def test_a_machine_that_cannot_be_had_in_place_of_one_that_leaves_is_ordered_again_after_a_pause() -> None:
    """Also machines that the cloud takes back soon after their start are replaced less and less often."""
    course, looked = Course(0.0), Looked(900.0, leaving=(Leaving("a", 0.0),))
    assert course.handle(looked, 1.0)[-1] == Replace("a", is_alive=True)
    assert course.handle(Finished("quota"), 2.0) == [Say("proxy a was not replaced: quota")]
    assert course.handle(looked, 2.0) == []
    dead = Looked(900.0, unhealthy=("a",))
    assert course.handle(dead, DEAD_PAUSE_S) == [], "its machine has ended"
    assert course.handle(looked, 1.0 + DEAD_PAUSE_S)[-1] == Replace("a", is_alive=True)
    course.handle(Finished(), 40.0)
    assert course.handle(looked, 40.0 + DEAD_PAUSE_S) == []
    assert course.handle(looked, 1.0 + 3.0 * DEAD_PAUSE_S)[-1] == Replace("a", is_alive=True)


def test_a_proxy_that_can_be_reached_again_keeps_its_machine() -> None:
    course, blocked = Course(0.0), Looked(900.0, blocked=("a",))
    assert course.handle(blocked, 0.0) == course.handle(FINE, BLOCKED_S) == []
    assert course.handle(blocked, BLOCKED_S) == course.handle(blocked, 2 * BLOCKED_S - 1) == []
    assert Replace("a", is_alive=True) in course.handle(blocked, 2 * BLOCKED_S)


def test_a_home_that_answers_late_is_waited_for_and_a_dead_one_is_not() -> None:
    late = Looked(900.0, home="no answer")
    course = Course(0.0)
    for _ in range(3):
        assert [course.handle(late, 0.0) for _ in range(HOME_LOOKS_MAX - 1)] == [[]] * (HOME_LOOKS_MAX - 1)
        assert course.handle(FINE, 0.0) == []
    for _ in range(HOME_LOOKS_MAX - 1):
        course.handle(late, 0.0)
    gone = [Close("the split proxy of this machine is gone: no answer")]
    assert course.handle(late, 0.0) == gone
    assert Course(0.0).handle(Looked(900.0, home="no answer", home_lives=False), 0.0) == gone
