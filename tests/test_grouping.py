"""Groups of tests that run in one worker."""

from __future__ import annotations

from pathlib import Path

from tests.grouping import group_of, has_shared_fixture


def test_only_tests_of_a_module_with_a_shared_fixture_are_grouped(tmp_path: Path) -> None:
    shared, plain = tmp_path / "test_shared.py", tmp_path / "test_plain.py"
    shared.write_text('@pytest.fixture(scope="module")\ndef server() -> None: ...\n', encoding="utf-8")
    plain.write_text("@pytest.fixture\ndef server() -> None: ...\n", encoding="utf-8")
    assert has_shared_fixture(shared) and not has_shared_fixture(plain)
    assert group_of(f"{shared}::test_a[1]") == group_of(f"{shared}::test_b") == str(shared)
    assert group_of(f"{plain}::test_a[1]") == f"{plain}::test_a[1]"
