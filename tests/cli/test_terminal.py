import io

import pytest

from tradewind.cli.terminal import Terminal, printable
from tradewind.model.event import Notice, ObjectFailed, Progress, WouldCopy, WouldDelete


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def test_live_lines_on_a_terminal_are_removed() -> None:
    stream = Tty()
    terminal = Terminal(quiet=False, stream=stream)
    terminal.event(Progress(objects_total=5))
    terminal.event(Notice("route down"))
    terminal.event(Progress(objects_total=6))
    terminal.end()
    text = stream.getvalue()
    assert "0/≥5 objects" in text
    assert "\x1b[2A\x1b[Jnote: route down\n" in text
    assert text.endswith("\x1b[2A\x1b[J")


def test_without_a_terminal_lines_are_printed_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    terminal = Terminal(quiet=False, stream=stream)
    terminal.event(Progress())
    assert stream.getvalue() == ""
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    terminal.event(Progress())
    terminal.event(Progress())
    assert stream.getvalue().count("\n") == 1


def test_quiet_still_shows_failures() -> None:
    stream = io.StringIO()
    terminal = Terminal(quiet=True, stream=stream)
    terminal.say("hello")
    terminal.event(Notice("route down"))
    terminal.event(ObjectFailed("s3://b/k", "x", "forbidden", "not allowed", "ask for s3:GetObject"))
    terminal.end()
    assert stream.getvalue() == "error: s3://b/k: not allowed\nhint: ask for s3:GetObject\n"


def test_dry_run_mappings_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(quiet=False).event(WouldCopy("a", "b", 5))
    Terminal(quiet=False).event(WouldDelete("a\n\\b"))
    assert capsys.readouterr().out == "copy\ta\tb\t5 B\ndelete\ta\\n\\\\b\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("é →", "é →"),
        ("a\u202eb", "a\\u202eb"),
        ("x\udcff", "x\\udcff"),
        ("a\rb\n", "a\\rb\\n"),
        ("a\\b", "a\\b"),
    ],
)
def test_names_cannot_control_the_terminal(line: str, shown: str) -> None:
    assert printable(line) == shown
