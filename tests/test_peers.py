"""Each test of other tools has a counterpart: a case, a test, a documented difference or an option that is absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.peers import aws, counterparts, juicefs, rclone, s5cmd
from tests.e2e.peers.case import Case

TESTS = Path(__file__).resolve().parent
GUIDE = (TESTS.parent / "docs" / "guides" / "coming-from.md").read_text(encoding="utf-8")
LISTS = {
    "rclone": (counterparts.RCLONE, rclone.CASES),
    "s5cmd": (counterparts.S5CMD, s5cmd.CASES),
    "juicefs": (counterparts.JUICEFS, juicefs.CASES),
    "aws": (counterparts.AWS, aws.CASES),
}


def own_name(case: Case) -> str:
    """Return the name of the tool's own test, without what distinguishes several cases of it."""
    words = case.name.partition(":")[0].split()
    return words[0].removeprefix("Test") if words[0].startswith("Test") else "-".join(words[:2])


def exists(counterpart: str, cases: Sequence[Case]) -> bool:
    """Return whether the test, the case, the sentence of the guide or the absent option exists."""
    kind, _, what = counterpart.partition(": ")
    if kind == "own":
        return bool(what)
    if kind == "case":
        return any(case.name == what for case in cases)
    if kind == "differs":
        return " ".join(what.split()) in " ".join(GUIDE.split())
    if kind == "absent":
        rows = (line.split(" | ") for line in GUIDE.splitlines() if f"{what}`" in line)
        return any(row[-1].startswith(("- ", "-|", "not needed")) for row in rows)
    file, _, test = counterpart.partition("::")
    return f"def {test}(" in (TESTS / file).read_text() if test else (TESTS / file).exists()


@pytest.mark.parametrize("peer", LISTS)
def test_each_test_of_a_peer_has_one_counterpart(peer: str) -> None:
    listed, cases = LISTS[peer]
    names = Counter(name for names in listed.values() for name in names.split())
    repeated = {own_name(case) for case in cases}
    assert [name for name, times in names.items() if times > 1] == []
    assert names.keys() & repeated == set()
    assert [counterpart for counterpart in listed if not exists(counterpart, cases)] == []
