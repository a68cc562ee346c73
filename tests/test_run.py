"""`make test` repeats the few tests that fail beside others, and only those."""

from pathlib import Path

import pytest

from tests import run

COUNTED = """
from pathlib import Path
def test_counted():
    runs = Path({runs!r})
    runs.touch()
    runs.write_text(runs.read_text() + "x")
    assert len(runs.read_text()) not in {failing}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for test files, away from the settings of this project."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    return tmp_path


def test_a_test_that_passes_alone_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_once.py").write_text(COUNTED.format(runs=str(folder / "runs"), failing=[1]))
    assert run.main(["test_once.py"]) == 0
    assert (folder / "runs").read_text() == "xxxx"
    assert capfd.readouterr().out.endswith(
        "Passed alone 3 times, after a failure beside other tests:\n  test_once.py::test_counted\n"
    )


def test_a_test_that_fails_now_and_then_fails_the_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_often.py").write_text(COUNTED.format(runs=str(folder / "runs"), failing=[1, 3]))
    assert run.main(["test_often.py"]) == 1
    assert capfd.readouterr().out.endswith("Failed again.\n  test_often.py::test_counted\n")


def test_a_test_that_fails_again_fails_the_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_always.py").write_text("def test_always():\n    assert False\ndef test_never():\n    pass\n")
    assert run.main(["test_always.py"]) == 1
    assert capfd.readouterr().out.endswith("Failed again.\n  test_always.py::test_always\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_many(n):\n    assert False\n", 1),
        ("def test_many(:\n", 2),
        ("", 5),
    ],
)
def test_nothing_else_is_repeated(folder: Path, capfd: pytest.CaptureFixture[str], text: str, code: int) -> None:
    (folder / "test_many.py").write_text(text)
    assert run.main([str(folder / "test_many.py")]) == code
    assert "Again" not in capfd.readouterr().out
