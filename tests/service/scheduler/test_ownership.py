"""Jobs that write to the same place: many of them wait as if each pair was kept, with few pairs."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.service.scheduler.scenes import job
from tradewind.service.scheduler.jobs import ServiceJob
from tradewind.service.scheduler.ownership import Ownership


class AllPairs:
    """The same with all pairs, as simply as possible."""

    def __init__(self) -> None:
        self.jobs: dict[str, ServiceJob] = {}
        self.earlier: dict[str, set[str]] = {}

    def claim(self, one: ServiceJob, yields: Callable[[str], bool]) -> bool:
        found = {name for name, other in self.jobs.items() if overlap(one, other) and not yields(name)}
        self.jobs[one.id], self.earlier[one.id] = one, found
        return not found

    def release(self, one: ServiceJob) -> list[str]:
        del self.jobs[one.id], self.earlier[one.id]
        after = [name for name, found in self.earlier.items() if one.id in found]
        for name in after:
            self.earlier[name].discard(one.id)
        return sorted(name for name in after if not self.earlier[name])


def overlap(one: ServiceJob, other: ServiceJob) -> bool:
    if one.is_prefix and other.path.startswith(one.path):
        return True
    return one.path == other.path or (other.is_prefix and one.path.startswith(other.path))


PATHS = some.sampled_from(["", "a/", "a/b/", "a/b/c/", "a/d/", "e/", "a/b/c/file", "e/file", "file"])
STEPS = some.lists(some.one_of(some.tuples(PATHS, some.booleans(), some.integers(1, 3)), some.integers(0, 30)))


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_jobs_wait_as_if_each_pair_was_kept(steps: list[tuple[str, bool, int] | int]) -> None:
    """A step adds a job, or removes one, whether or not it waits."""
    ownership, simple = Ownership(), AllPairs()
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            one = job(f"j{number:03}", path=step[0], is_prefix=step[1])
            assert ownership.claim(one) == simple.claim(one, lambda _: False)
        elif simple.jobs:
            gone = list(simple.jobs.values())[step % len(simple.jobs)]
            assert ownership.release(gone) == simple.release(gone)
        for name, earlier in simple.earlier.items():
            assert ownership.owners(name) == earlier
            assert not earlier or ownership.first_owner(name) in earlier
            assert set(ownership.later(name)) == {later for later, found in simple.earlier.items() if name in found}


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_jobs_that_yield_may_be_waited_for_because_another_one_waits(steps: list[tuple[str, bool, int] | int]) -> None:
    ownership, simple = Ownership(), AllPairs()
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            path, is_prefix, yielding = step

            def yields(name: str, yielding: int = yielding) -> bool:
                return int(name[1:]) % 4 == yielding

            one = job(f"j{number:03}", path=path, is_prefix=is_prefix)
            assert ownership.claim(one, yields) == simple.claim(one, yields)
        elif simple.jobs:
            gone = list(simple.jobs.values())[step % len(simple.jobs)]
            assert set(ownership.release(gone)) <= {*simple.release(gone), *simple.jobs}
        assert all(earlier <= ownership.owners(name) for name, earlier in simple.earlier.items())
    left = dict(simple.jobs)
    while left:  # Nothing waits for ever.
        name = next(name for name in left if not ownership.owners(name))
        ownership.release(left.pop(name))


@pytest.mark.parametrize("levels", [1, 20])
def test_there_are_few_pairs_however_many_jobs_write_to_one_place(levels: int) -> None:
    ownership = Ownership()
    jobs = [job(f"j{number:04}", path="a/" * (number % levels + 1), is_prefix=True) for number in range(400)]
    for one in jobs:
        ownership.claim(one)
    assert ownership.pairs() < 2 * len(jobs)
    assert len(ownership.owners("j0399")) == 399
    for one in jobs[1::2]:
        ownership.release(one)
    assert ownership.pairs() < 2 * len(jobs)
    order = [name for one in jobs[::2] for name in ownership.release(one)]
    assert order == [one.id for one in jobs[2::2]]
