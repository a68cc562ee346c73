"""Print every message, hint and help text of the programs with its place, to be read as prose.

Usage: python -m testbed.messages [--python | --rust]
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The shortest text that is printed, in words. Shorter strings are mostly names of fields and options.
WORDS_MIN = 2
RUST_LITERAL = re.compile(r'\b[bc]?r(#*)"(?P<raw>.*?)"\1|(?<!\w)[bc]?"(?P<text>(?:[^"\\]|\\.)*)"', re.DOTALL)
RUST_QUOTE = re.compile(r"""'\\?"'""")
RUST_COMMENT = re.compile(r"^[ \t]*//.*$", re.MULTILINE)
#: An item that is only for unit tests: to the end of its line, or to the first closing brace at the margin.
RUST_TESTS = re.compile(
    r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*(?:[^\n{]*;\n|.*?^\};?\n|.*)", re.MULTILINE | re.DOTALL
)
RUST_TEST_FILE = re.compile(r"tests?\.rs$|/tests/|/drops\.rs$|/fuzz\.rs$")
CONTINUED = re.compile(r"\\\n\s*")


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a module that is no docstring and has at least `WORDS_MIN` words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_part(part) for part in node.values)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue), "nothing else is in an f-string"
    return f"{{{ast.unparse(part.value)}}}"


def rust_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string literal outside of comments and unit tests."""
    source = RUST_TESTS.sub(lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"))
    source = RUST_QUOTE.sub("' '", RUST_COMMENT.sub("", source))
    for found in RUST_LITERAL.finditer(source):
        text = found["raw"] if found["text"] is None else CONTINUED.sub("", found["text"])
        yield source.count("\n", 0, found.start()) + 1, text


def is_prose(text: str) -> bool:
    """Return whether a text has enough words to be read by a person."""
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= WORDS_MIN and " " in text.strip()


@dataclass(frozen=True)
class Message:
    """A text that people may read, on one line, and its place below the root of the repository."""

    path: str
    line: int
    text: str


def messages(*, python: bool = True, rust: bool = True) -> Iterator[Message]:
    """Yield the prose of the Python package and of the Rust programs."""
    files: list[Path] = []
    if python:
        files += sorted((ROOT / "src" / "tradewind").rglob("*.py"))
    if rust:
        sources = sorted((ROOT / "crates").glob("*/src/**/*.rs"))
        files += [path for path in sources if not RUST_TEST_FILE.search(str(path.relative_to(ROOT)))]
    for path in files:
        texts = python_texts if path.suffix == ".py" else rust_texts
        for line, text in texts(path):
            if is_prose(text):
                yield Message(str(path.relative_to(ROOT)), line, " ".join(text.split()))


def main() -> int:
    """Parse the command line and print the texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--python", action="store_true", help="only those of the Python package")
    only.add_argument("--rust", action="store_true", help="only those of the Rust programs")
    arguments = parser.parse_args()
    for message in messages(python=not arguments.rust, rust=not arguments.python):
        print(f"{message.path}:{message.line}: {message.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
