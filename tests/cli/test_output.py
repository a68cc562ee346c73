import io

import pytest

from tradewind.cli.output import Talk, printable
from tradewind.model.event import Notice, ObjectFailed, Progress, WouldCopy, WouldDelete


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def test_a_terminal_has_live_lines_that_go_away() -> None:
    terminal = Terminal()
    talk = Talk(quiet=False, stream=terminal)
    talk.event(Progress(objects_total=5))
    talk.event(Notice("route down"))
    talk.event(Progress(objects_total=6))
    talk.end()
    text = terminal.getvalue()
    assert "0/≥5 objects" in text
    assert "\x1b[2A\x1b[Jnote: route down\n" in text
    assert text.endswith("\x1b[2A\x1b[J")


def test_without_a_terminal_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    talk = Talk(quiet=False, stream=stream)
    talk.event(Progress())
    assert stream.getvalue() == ""
    monkeypatch.setattr("time.monotonic", lambda: 1e12)
    talk.event(Progress())
    talk.event(Progress())
    assert stream.getvalue().count("\n") == 1


def test_quiet_still_names_what_went_wrong() -> None:
    stream = io.StringIO()
    talk = Talk(quiet=True, stream=stream)
    talk.say("hello")
    talk.event(Notice("route down"))
    talk.event(ObjectFailed("s3://b/k", "x", "forbidden", "not allowed", "ask for s3:GetObject"))
    talk.end()
    assert stream.getvalue() == "error: s3://b/k: not allowed\nhint: ask for s3:GetObject\n"


def test_mappings_of_a_dry_run_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    Talk(quiet=False).event(WouldCopy("a", "b", 5))
    Talk(quiet=False).event(WouldDelete("a\n\\b"))
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
