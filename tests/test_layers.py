"""The layer table of ARCHITECTURE.md is law: imports go downwards only, and packages of one layer never meet."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tradewind"

#: Lower numbers know nothing of higher ones.
LAYERS = {
    "_version": 0,
    "errors": 1,
    "model": 1,
    "programs": 2,
    "catalog": 2,
    "planner": 3,
    "placement": 3,
    "market": 3,
    "render": 4,
    "gateway": 4,
    "sky": 4,
    "fleet": 5,
    "engine": 6,
    "acceleration": 6,
    "measure": 6,
    "cli": 7,
    "service": 7,
}
#: The nouns and the errors are one layer with two names.
NOUNS = {"errors", "model"}


def package_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Parts of tradewind that a file imports, wherever in the file: also within functions, not for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "tradewind" else [base]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("tradewind."))


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards_only(path: Path) -> None:
    here = package_of(path)
    for there in imports_of(path):
        if there == here or {here, there} <= NOUNS:
            continue
        assert LAYERS[there] < LAYERS[here], f"{here} (layer {LAYERS[here]}) imports {there} (layer {LAYERS[there]})"


def test_no_drawers() -> None:
    for path in PACKAGE.rglob("*"):
        assert path.stem not in {"utils", "util", "common", "helpers", "core", "manager"}, path


def test_errors_at_large_are_caught_in_main_alone() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            caught = node.type if isinstance(node, ast.ExceptHandler) else None
            if isinstance(caught, ast.Name) and caught.id == "Exception":
                assert path == PACKAGE / "cli" / "main.py", path
