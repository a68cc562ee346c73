"""Check the layer table of ARCHITECTURE.md: imports go only downwards, and not between packages of one layer.

For Rust, Cargo enforces the layers of the crates. Within the gateway and the stores no two parts import each other.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tradewind"

#: Layer by package. A package may import only from lower layers.
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
    "acceleration": 6,
    "measure": 6,
    "engine": 7,
    "cli": 8,
    "service": 8,
}
#: These two packages form one layer, and may import each other.
NOUNS = {"errors", "model"}


def package_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    """Yield the parts of tradewind that a file imports; see `modules_of`."""
    return (name.split(".")[0] for name in modules_of(path))


def modules_of(path: Path) -> Iterator[str]:
    """Yield the modules below tradewind that a file imports, including those in functions, but not for types only."""
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
            is_package = (PACKAGE.parent / base.replace(".", "/") / "__init__.py").exists()
            names = [f"{base}.{alias.name}" for alias in node.names] if is_package else [base]
        else:
            continue
        yield from (name.removeprefix("tradewind.") for name in names if name.startswith("tradewind."))


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downwards_only(path: Path) -> None:
    here = package_of(path)
    for there in imports_of(path):
        if there == here or {here, there} <= NOUNS:
            continue
        assert LAYERS[there] < LAYERS[here], f"{here} (layer {LAYERS[here]}) imports {there} (layer {LAYERS[there]})"


#: Packages that the command line may import: the engine, its types, and their rendering.
ONE_DOOR = {"_version", "cli", "engine", "errors", "model", "render"}
#: Modules of the engine that decide how jobs run. The command line must not import them.
ENGINE_INTERNALS = {
    "adapt",
    "compile",
    "event_log",
    "event_store",
    "gateways",
    "job_control",
    "launch_spec",
    "learning",
    "ledger",
    "own_files",
    "provisioning",
    "rates",
    "replan",
    "runs",
    "stored",
    "supervisor",
}
CLI_FILES = sorted((PACKAGE / "cli").glob("*.py"))


def test_the_internals_of_the_engine_have_their_real_names() -> None:
    assert {path.stem for path in (PACKAGE / "engine").glob("*.py")} >= ENGINE_INTERNALS


@pytest.mark.parametrize("path", CLI_FILES, ids=lambda path: path.name)
def test_the_command_line_uses_only_the_engine(path: Path) -> None:
    modules = set(modules_of(path))
    assert {name.split(".")[0] for name in modules} <= ONE_DOOR
    assert not modules & {f"engine.{name}" for name in ENGINE_INTERNALS}


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_catch_all_modules() -> None:
    for path in PACKAGE.rglob("*"):
        assert path.stem not in {"utils", "util", "common", "helpers", "core", "manager"}, path


#: A fault of the program must end one command, or one job or step of the service, in one line, and nothing else.
CATCH_ALL = {PACKAGE / "cli" / "main.py", *(PACKAGE / "service" / name for name in ("faults.py", "job_worker.py"))}


def test_only_commands_and_jobs_catch_all_errors() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            caught = node.type if isinstance(node, ast.ExceptHandler) else None
            if isinstance(caught, ast.Name) and caught.id == "Exception":
                assert path in CATCH_ALL, path


CRATES = PACKAGE.parents[1] / "crates"
#: The kinds of stores in `crates/store`, one folder or file each.
BACKENDS = {"azure", "file", "mem", "s3"}


def rust_code(path: Path) -> str:
    """Return a Rust file without its comments and its tests."""
    code = path.read_text(encoding="utf-8").partition("#[cfg(test)]\nmod tests {")[0]
    return re.sub(r"^\s*//.*$", "", code, flags=re.MULTILINE)


def parts_of(crate: str) -> dict[str, set[str]]:
    """Return the parts that each part of a crate imports. A part is a folder, or a file beside the folders.

    A name that `lib.rs` exports counts as the part that defines it.
    """
    source = CRATES / crate / "src"
    exported = {
        name: part
        for part, names in re.findall(r"\buse (\w+)::(\{[^;]*\}|\w+);", rust_code(source / "lib.rs"))
        for name in re.findall(r"\w+", names)
    }
    imports: dict[str, set[str]] = defaultdict(set)
    for path in source.rglob("*.rs"):
        inner = path.relative_to(source).parts
        here = inner[0].removesuffix(".rs")
        if "tests" in path.stem or "tests" in inner or here in ("lib", "main"):
            continue
        code = rust_code(path)
        groups = re.findall(r"\bcrate::\{([^;]*)\};", code)
        named = {first for group in groups for first in re.findall(r"(?:^|,)\s*(\w+)", group)}
        named |= set(re.findall(r"\bcrate::(\w+)", code))
        imports[here] |= {exported.get(name, name) for name in named} - {here}
    return imports


def circles(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the parts that import each other, directly or through others."""
    left = dict(imports)
    while free := [part for part, known in left.items() if not known & left.keys()]:
        for part in free:
            del left[part]
    return left


def test_no_two_folders_of_the_gateway_import_each_other() -> None:
    imports = parts_of("gateway")
    assert {"control", "lead", "net", "node", "program", "task"} <= imports.keys()
    assert imports["program"] >= {"lead", "node"}, "the test sees imports"
    assert not circles(imports)


def test_no_two_parts_of_the_stores_import_each_other() -> None:
    imports = parts_of("store")
    assert imports["open"] >= BACKENDS, "the test sees imports"
    assert {"model", "rest"} <= imports["s3"], "the test sees what lib.rs exports"
    assert not circles(imports)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_no_kind_of_store_imports_another(backend: str) -> None:
    assert not parts_of("store")[backend] & BACKENDS


def test_a_circle_is_detected() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}).keys() == {"a", "b", "c"}
