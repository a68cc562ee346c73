"""The layer table of ARCHITECTURE.md is law: imports go downwards only, and packages of one layer never meet.

Of Rust, Cargo enforces the layers of the crates; within the gateway no two folders import each other.
"""

import ast
import re
from collections import defaultdict
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
    "state": 2,
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


#: Packages that decide: the command line reaches them through the engine and `measure`. Exceptions are the verbs that
#: show or change such a package itself, and the demonstration, which builds a sky of its own.
DECIDING = {"catalog", "fleet", "planner"}
ALLOWED = {
    "catalog.py": {"catalog"},
    "catalog_refresh.py": {"catalog"},
    "catalog_show.py": {"catalog"},
    "fleet.py": {"fleet"},
    "demo_sky.py": {"catalog", "fleet"},
}


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").glob("*.py")), ids=lambda path: path.name)
def test_the_command_line_holds_no_decision(path: Path) -> None:
    assert set(imports_of(path)) & DECIDING == ALLOWED.get(path.name, set())


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_drawers() -> None:
    for path in PACKAGE.rglob("*"):
        assert path.stem not in {"utils", "util", "common", "helpers", "core", "manager"}, path


def test_errors_at_large_are_caught_in_main_alone() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            caught = node.type if isinstance(node, ast.ExceptHandler) else None
            if isinstance(caught, ast.Name) and caught.id == "Exception":
                assert path == PACKAGE / "cli" / "main.py", path


GATEWAY = PACKAGE.parents[1] / "crates" / "gateway" / "src"


def parts_of_the_gateway() -> dict[str, set[str]]:
    """Each folder of the gateway's crate, and each file beside them, with what it imports of the others."""
    imports: dict[str, set[str]] = defaultdict(set)
    for path in GATEWAY.rglob("*.rs"):
        inner = path.relative_to(GATEWAY).parts
        here = inner[0].removesuffix(".rs")
        if "tests" in path.stem or "tests" in inner or here in ("lib", "main"):
            continue
        code = path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
        code = re.sub(r"^\s*//.*$", "", code, flags=re.MULTILINE)
        groups = re.findall(r"\bcrate::\{([^;]*)\};", code)
        named = {first for group in groups for first in re.findall(r"(?:^|,)\s*(\w+)", group)}
        named |= set(re.findall(r"\bcrate::(\w+)", code))
        imports[here] |= named - {here}
    return imports


def test_no_two_folders_of_the_gateway_import_each_other() -> None:
    imports = parts_of_the_gateway()
    assert {"control", "lead", "net", "node", "program", "task"} <= imports.keys()
    assert imports["program"] >= {"lead", "node"}, "the test sees imports"
    left = dict(imports)
    while free := [part for part, known in left.items() if not known & left.keys()]:
        for part in free:
            del left[part]
    assert not left, f"these import each other in a circle: {left}"
