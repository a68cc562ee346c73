import io

import pytest

from tradewind.cli.terminal import Terminal, printable
from tradewind.model.event import Notice, ObjectFailed, Progress, WouldCopy, WouldDelete


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def test_a_terminal_has_live_lines_that_go_away() -> None:
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


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    terminal = Terminal(quiet=False, stream=stream)
    terminal.event(Progress())
    assert stream.getvalue() == ""
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    terminal.event(Progress())
    terminal.event(Progress())
    assert stream.getvalue().count("\n") == 1


def test_quiet_still_names_what_went_wrong() -> None:
    stream = io.StringIO()
    terminal = Terminal(quiet=True, stream=stream)
    terminal.say("hello")
    terminal.event(Notice("route down"))
    terminal.event(ObjectFailed("s3://b/k", "x", "forbidden", "not allowed", "ask for s3:GetObject"))
    terminal.end()
    assert stream.getvalue() == "error: s3://b/k: not allowed\nhint: ask for s3:GetObject\n"


def test_mappings_of_a_dry_run_are_data(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_names_cannot_play_with_the_terminal(line: str, shown: str) -> None:
    assert printable(line) == shown
