"""Files in the syntax of .gitignore, as --exclude-from reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.test_options import options
from tradewind.cli.options import read_ignore_file, read_rules
from tradewind.errors import UsageError
from tradewind.model.job import FilterRule


def read(tmp_path: Path, content: str | bytes) -> list[tuple[str, str]]:
    file = tmp_path / "ignored"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(rule.rule, rule.glob) for rule in read_ignore_file(str(file))]


def test_lines_are_read_as_git_reads_them(tmp_path: Path) -> None:
    text = "# comment\n\n*.tmp  \n!keep.tmp\r\n\\#a\n\\!b\n #c\nspace\\ \ntab\t\n/\n!\n   \n!!d\nlast"
    assert read(tmp_path, text) == [
        ("exclude", "*.tmp"),
        ("include", "keep.tmp"),
        ("exclude", "\\#a"),
        ("exclude", "\\!b"),
        ("exclude", " #c"),
        ("exclude", "space\\ "),
        ("exclude", "tab\t"),
        ("include", "!d"),
        ("exclude", "last"),
    ]
    assert read(tmp_path, b"\xef\xbb\xbfa\n\t\n/\t\n") == [
        ("exclude", "a"),
        ("exclude", "\\\t"),
        ("exclude", "/\\\t"),
    ]


def test_rules_of_files_keep_their_places(tmp_path: Path) -> None:
    file = tmp_path / "ignored"
    file.write_text("!a\nb\n")
    made = options("--include", "*.log", "--exclude-from", str(file), "--exclude", "c").filter
    assert [rule.glob for rule in made.rules] == ["*.log", "a", "b", "c"]
    assert not made.includes_unmatched
    made = options("--exclude-from", str(file), "--include", "d").filter
    assert made.rules[0] == FilterRule("include", "a")
    assert made.includes_unmatched, "a file that begins with ! excludes nothing else"


@pytest.mark.parametrize(
    ("content", "hint"),
    [(b"# nothing\n", "leave out"), (b"a\0b", "text file"), (b"\xff", "text file"), (b"- a\n+ b\n", "--filter-from")],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, content)
    assert hint in str(caught.value.hint)


def test_a_gitignore_file_for_filter_from_has_a_hint(tmp_path: Path) -> None:
    file = tmp_path / ".gitignore"
    file.write_text("node_modules\n*.pyc\n")
    with pytest.raises(UsageError, match=":1: neither") as caught:
        read_rules(str(file))
    assert f"--exclude-from {file}" in str(caught.value.hint)


class Repository:
    """A folder in which git is asked what it ignores."""

    def __init__(self, path: Path) -> None:
        """Make the repository."""
        self.path = path
        self.git("init", "--quiet")

    def git(self, *words: str, text: str = "") -> str:
        """Return what git prints."""
        done = subprocess.run(["git", *words], cwd=self.path, input=text.encode(), capture_output=True)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout.decode()

    def ignored(self, rules: bytes, names: list[str]) -> set[str]:
        """Return the names that git ignores by these rules."""
        (self.path / ".git/rules").write_bytes(rules)
        words = ("-c", "core.excludesFile=.git/rules", "check-ignore", "--no-index", "--stdin", "-z")
        return set(self.git(*words, text="\0".join(names)).split("\0")) - {""}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


PIECES = ["a", "b", "*", "!", "#", "\\", "\\ ", " ", "  ", "\t", "/", "\r", "\n", "\n", "\ufeff", "?", "[a]"]
NAMES = ["a", "b", " ", "  ", "\t", "!", "#", "!a", "#a", "a ", "a  ", " a", "a\t", "a\r", "\\", "\\a", "ab", "\ufeffa"]
NAMES += [f"{folder}/{name}" for folder in ("a", "b ") for name in ("a", "a ", "!a", "\t", "b")]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_git_reads_the_rules_as_it_reads_the_file(repository: Repository, tmp_path: Path, text: str) -> None:
    """The rules of a file, each written so that nothing in it can be trimmed or be a comment, ignore the same names."""
    file = tmp_path / "ignored"
    file.write_bytes(text.encode())
    try:
        rules = read_ignore_file(str(file))
    except UsageError:
        rules = []
    lines = [line(rule) for rule in rules]
    assert repository.ignored("\n".join(lines).encode(), NAMES) == repository.ignored(text.encode(), NAMES)


def line(rule: FilterRule) -> str:
    """Return the line of a .gitignore file for a rule, with a backslash before every blank that has none."""
    negated = rule.rule == "include"
    quoted = not negated and rule.glob.startswith(("!", "#"))
    made = ("!" if negated else "") + ("\\" if quoted else "")
    for character in rule.glob:
        made += "\\" if character in " \r\ufeff" and not quoted else ""
        made += character
        quoted = character == "\\" and not quoted
    # git takes one carriage return at the end for a part of the line's end.
    return f"{made}\r" if made.endswith("\r") else made
