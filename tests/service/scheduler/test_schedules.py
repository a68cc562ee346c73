"""Timetables: cron, ends, overlaps, clock changes."""

from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice

import pytest

from tradewind.errors import UsageError
from tradewind.service.scheduler.schedules import ALLOW, QUEUE, QUEUED_MAX, SKIP, JobSchedule, Occurrence, Timetable

DAY_S = 86_400.0


def daily(**changes: object) -> JobSchedule:
    return JobSchedule(**({"id": "backup", "cron": "0 2 * * *"} | changes))  # type: ignore[arg-type]


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def submitted(table: Timetable, days: int) -> list[float]:
    """Run a timetable for some days. Each job ends before the next day."""
    times = []
    for day in range(1, days + 1):
        for one in table.due(day * DAY_S):
            table.began(f"{day}")
            table.ended(f"{day}")
            times.append(one.at_s)
    return times


def test_a_schedule_ends_by_count_or_date() -> None:
    assert submitted(Timetable(daily(), 0), 5) == [7200 + day * DAY_S for day in range(5)]
    assert len(submitted(Timetable(daily(count=3), 0), 5)) == 3
    table = Timetable(daily(end_s=2 * DAY_S), 0)
    assert len(submitted(table, 5)) == 2
    assert table.is_over
    assert table.next_s() is None


def test_skip() -> None:
    table = Timetable(daily(overlap=SKIP), 0)
    assert table.due(DAY_S) == [Occurrence(7200)]
    table.began("a")
    assert table.due(2 * DAY_S) == [Occurrence(7200 + DAY_S, "job a has not ended")]
    assert table.ended("a") == []
    assert table.due(3 * DAY_S) == [Occurrence(7200 + 2 * DAY_S)]


def test_queue_is_bounded() -> None:
    table = Timetable(daily(overlap=QUEUE), 0)
    assert table.due(DAY_S) == [Occurrence(7200)]
    table.began("a")
    for day in range(2, 2 + QUEUED_MAX):
        assert table.due(day * DAY_S) == []
    (skipped,) = table.due((2 + QUEUED_MAX) * DAY_S)
    assert skipped.skipped == "10 scheduled times already wait for job a"
    assert table.ended("a") == [Occurrence(7200 + DAY_S)]


def test_allow() -> None:
    table = Timetable(daily(overlap=ALLOW), 0)
    for day in (1, 2):
        (one,) = table.due(day * DAY_S)
        assert one.skipped is None
        table.began(str(day))


def test_times_that_passed_unseen_count_once() -> None:
    missed, latest = Timetable(daily(), 0).due(4 * DAY_S)
    assert missed.skipped == "3 earlier scheduled times passed while the service was down"
    assert latest == Occurrence(7200 + 3 * DAY_S)


def test_the_times_of_years_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(schedule: JobSchedule, now_s: float) -> Iterator[float]:
        nonlocal looks
        for one in times_after(schedule, now_s):
            looks += 1
            yield one

    table = Timetable(daily(cron="* * * * *"), 0)
    times_after = JobSchedule.times_after
    monkeypatch.setattr(JobSchedule, "times_after", counted)
    missed, latest = table.due(3_650 * DAY_S + 59)
    assert missed.skipped == "more than 1,000 earlier scheduled times passed while the service was down"
    assert (latest, table.next_s()) == (Occurrence(3_650 * DAY_S), 3_650 * DAY_S + 60)
    assert looks < 1_200


@pytest.mark.parametrize("cron", ["*/7 * * * *", "30 2 * * *", "5 4 1 * *", "* 2 * * 0"])
def test_the_latest_time_that_has_passed_counts(cron: str) -> None:
    schedule = daily(cron=cron, time_zone="Europe/Zurich", end_s=90 * DAY_S)
    for now_s in (3 * DAY_S, 86.9 * DAY_S, 90 * DAY_S, 99 * DAY_S):
        passed = [one for one in schedule.times_after(0) if one <= now_s]
        found = Timetable(schedule, 0).due(now_s)
        assert found[-1:] == [Occurrence(one) for one in passed[-1:]]


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("Europe/Zurich", "2026-10-25T00:00"),
        ("America/New_York", "2026-11-01T05:00"),
        ("Australia/Lord_Howe", "2026-04-04T14:30"),
        ("Europe/Zurich", "2026-03-29T00:00"),
    ],
)
@pytest.mark.parametrize("cron", ["30 2 * * *", "45 1 * * *", "30 1-3 * * *", "*/20 * * * *"])
def test_the_next_time_is_in_the_future_during_a_clock_change(zone: str, hour: str, cron: str) -> None:
    schedule, begin_s = daily(cron=cron, time_zone=zone), utc(hour)
    for minute in range(0, 180, 5):
        now_s = begin_s + minute * 60
        times = list(islice(schedule.times_after(now_s), 5))
        assert times == sorted(times) and times[0] > now_s


@pytest.mark.parametrize("until", ["2026-10-25T01:29", "2026-10-25T02:00", "2026-10-25T08:00", "2026-11-25T00:00"])
def test_a_time_that_passed_during_a_clock_change_counts_once(until: str) -> None:
    """The service was down then, or its scheduler had much to do."""
    table = Timetable(daily(cron="30 2 * * *", time_zone="Europe/Zurich"), utc("2026-10-24T12:00"))
    found = [one for one in table.due(utc(until)) if one.skipped is None]
    at = "2026-11-24T01:30" if until.startswith("2026-11") else "2026-10-25T00:30"
    assert found == [Occurrence(utc(at))]
    following = table.next_s()
    assert following is not None and following > utc(until)


def test_clock_changes() -> None:
    """On 29 March 2026, 02:30 does not exist in Zurich; on 25 October it comes twice."""
    schedule = daily(cron="30 2 * * *", time_zone="Europe/Zurich")
    for month, day in ((3, 28), (10, 24)):
        start = datetime(2026, month, day, 12, tzinfo=timezone.utc).timestamp()
        times = schedule.times_after(start)
        dates = [datetime.fromtimestamp(next(times), timezone.utc).day for _ in range(3)]
        assert dates == [day + 1, day + 2, day + 3] if month == 3 else len(set(dates)) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * *"}, "does not have five fields"),
        ({"time_zone": "Mars/Base"}, "no such time zone: Mars/Base"),
        ({"time_zone": "Mars/Base", "cron": None}, "no such time zone: Mars/Base"),
        ({"overlap": "maybe"}, "no such rule for overlaps: maybe"),
        ({"count": 0}, "the count is below 1"),
    ],
)
def test_what_cannot_be_a_schedule(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        daily(**changes)


def test_events_follow_the_rule_for_overlaps_beside_the_times() -> None:
    table = Timetable(daily(overlap=QUEUE, end_s=2 * DAY_S), 0)
    assert table.happened(100.5) == [Occurrence(100.5)]
    table.began("first")
    assert table.due(DAY_S) == [] and table.happened(DAY_S + 0.25) == []
    assert table.queued == (7200.0, DAY_S + 0.25)
    assert table.ended("first") == [Occurrence(7200.0)]
    assert table.happened(3 * DAY_S) == [Occurrence(3 * DAY_S, "the schedule has ended")]


def test_a_schedule_without_times_ends_by_its_count_alone() -> None:
    table = Timetable(JobSchedule("uploads", None, count=1), 0)
    assert (table.is_over, table.next_s(), table.due(DAY_S)) == (False, None, [])
    assert table.happened(5.5) == [Occurrence(5.5)]
    table.began("one")
    assert table.is_over and table.happened(6.5) == [Occurrence(6.5, "the schedule has ended")]
