"""Commands in the documentation work: `console` blocks are run, `sh` blocks are parsed, links are checked."""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from testbed.sky import unavailable
from tradewind.cli import EXIT_CODES, VERBS
from tradewind.cli.arguments import build_parser
from tradewind.cli.main import _leading_flags
from tradewind.errors import TradewindError
from tradewind.state.schema import VERSION

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [ROOT / "README.md", ROOT / "docs" / "get-started.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
COMMAND_S = 120


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


def normal(text: str) -> list[str]:
    """Normalize numbers, sizes and job ids, which differ from run to run. Everything else must match.

    On a busy machine a route may answer late, and then some bytes are sent over another route, too.
    """
    text = re.sub(r"^(also .* sent twice because |.* bytes sent again\b).*\n", "", text, flags=re.M)
    text = re.sub(r"(/[\w.-]+)+/(photos|slow.raw)", r"DIR/\2", text)
    text = re.sub(r"\d{8}-\d{6}-[a-z0-9]{4,8}", "JOB", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:.]+Z?", "TIME", text)
    text = re.sub(r"\d[\d,.]* (k|M|G)?B", "SIZE", text)
    text = re.sub(r"\d[\d,.]*", "N", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def exact(text: str) -> list[str]:
    """Normalize only the time of planning. Figures of plans are the same everywhere."""
    return [line.rstrip() for line in re.sub(r"(, in )\d+\.\d\d s\b", r"\1N s", text).splitlines() if line.strip()]


def sessions(block: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", block, flags=re.M)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize("path", [page for page in GUIDES if blocks(page, "console")], ids=lambda path: path.name)
def test_console_blocks_print_what_they_show(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if path.name == "sky.md" and (reason := unavailable()):
        pytest.skip(reason)
    photos = tmp_path / "work" / "photos"
    (photos / "2024" / "raw").mkdir(parents=True)
    for number in range(40):
        (photos / "2024" / f"{number:02}.jpg").write_bytes(os.urandom(50_000))
    (photos / "2024" / "raw" / "00.raw").write_bytes(os.urandom(20_000_000))
    (photos / "index.tmp").write_text("scratch")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TRADEWIND_", "XDG_", "AWS_"))},
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
        "TZ": "UTC",
    }
    if path.name == "sky.md":
        # A page that fails must not leave its sky running.
        down = ["tradewind", "sky", "down", "sky.json"]
        request.addfinalizer(lambda: subprocess.run(down, cwd=tmp_path / "work", env=environment, capture_output=True))
    for block in blocks(path, "console"):
        for command, expected in sessions(block):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_S,
                text=True,
                check=False,
            )
            alike = exact if command.startswith("tradewind plan ") else normal
            assert alike(done.stdout) == alike(expected), f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("path", [page for page in GUIDES if blocks(page, "pycon")], ids=lambda path: path.name)
def test_python_sessions_print_what_they_show(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names: dict[str, object] = {}
    for block in blocks(path, "pycon"):
        for example in doctest.DocTestParser().get_examples(block):
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                try:
                    exec(compile(example.source, str(path), "single"), names)
                except TradewindError as error:
                    assert example.exc_msg is not None, error
                    kind = f"{type(error).__module__}.{type(error).__qualname__}"
                    assert exact(f"{kind}: {error}") == exact(example.exc_msg), example.source
                    continue
            assert example.exc_msg is None, example.source
            assert exact(shown.getvalue()) == exact(example.want), example.source


def test_bytes_sent_twice_on_a_busy_machine_do_not_fail_a_page() -> None:
    row = "  1    egress  a → c   0.01 GB  $0.05/GB  $0.0005\n"
    twice = "  1    egress  bytes sent again, 5.24 MB as duplicates   $0.000262   $0.000262\n"
    summary = "also    5.24 MB sent twice because a route stood still or was slow\n"
    assert normal(summary + row + twice) == normal(row) != []


def test_a_stale_figure_of_a_plan_is_noticed() -> None:
    line = "  plan      proven optimal, in {} s\n  cost      ${}: egress $45.00\n"
    assert exact(line.format("1.14", "45.35")) == exact(line.format("0.98", "45.35"))
    assert exact(line.format("1.14", "45.35")) != exact(line.format("1.14", "45.36"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_parse(path: Path) -> None:
    for block in blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"[|<>()]+|&&", line):
                words = shlex.split(part, comments=True)
                if words[:1] != ["tradewind"]:
                    continue
                moved, rest = _leading_flags(words[1:])
                assert rest[0] in VERBS, line
                parser = build_parser(rest[0], import_module(f"tradewind.cli.{rest[0]}"))
                parser.parse_strictly(moved + rest[1:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        assert (path.parent / target.partition("#")[0]).exists(), target


def test_every_verb_has_a_file_and_a_line_in_the_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tradewind.cli.main", "--help"], capture_output=True, text=True, check=True
    )
    for verb, what in VERBS.items():
        assert f"{verb:<11} {what}" in done.stdout


@pytest.mark.parametrize("page", ["cli.md", "settings.md", "python.md"])
def test_generated_pages_are_complete(page: str) -> None:
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    import tradewind
    from tradewind.cli.config import SETTINGS

    wanted: dict[str, list[str]] = {"cli.md": [*VERBS], "settings.md": [*SETTINGS], "python.md": tradewind.__all__}
    missing = [name for name in wanted[page] if name not in text and not name.startswith("__")]
    assert not missing, "run make docs"


@pytest.mark.parametrize("page", ["concepts/integrity.md", "results/fleet.md", "results/fleet-transcripts.md"])
def test_the_tests_that_pages_name_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|crates)/[\w/.]+?)(?:::(\w+))?`", text)
    assert len(named) >= 4
    for path, test in named:
        content = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in content, f"{path} has no {test}"


def test_the_code_that_pages_name_exists() -> None:
    tops = ("src", "crates", "tests", "fuzz", "testbed")
    code = [path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".rs", ".csv")]
    words = {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    files = {path.name for path in code}
    concepts, guide = sorted((ROOT / "docs" / "concepts").glob("*.md")), ROOT / "docs" / "guides" / "add-a-store.md"
    named = [
        (page.name, name)
        for page in [*concepts, guide]
        for name in re.findall(r"`(?:[\w/]+/)?(\w+(?:\.(?:py|rs))?)`", page.read_text(encoding="utf-8"))
        if page == guide or name.startswith("_") or "." in name
    ]
    assert len(named) > 90
    assert not [(page, name) for page, name in named if name not in words | files]


def test_the_limits_exist_in_the_code() -> None:
    code = [path for top in ("src", "crates") for path in (ROOT / top).rglob("*") if path.suffix in (".py", ".rs")]
    words = {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    rows = re.findall(r"^\| (`[^|]*)\|", (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8"), re.M)
    named = [name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row)]
    memory = (ROOT / "docs" / "concepts" / "memory.md").read_text(encoding="utf-8")
    named += re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", memory)
    assert len(named) > 150
    assert not [name for name in named if name not in words]


def test_the_symptoms_are_messages_of_the_code() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for top in ("src", "crates")
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".rs")
    )
    text = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.M)
    pieces = [
        piece.strip() for cell in symptoms for named in re.findall(r"`(.+?)`", cell) for piece in named.split("…")
    ]
    assert len(pieces) > 50
    assert not [piece for piece in pieces if piece not in code]


def test_the_table_of_exit_codes_is_that_of_the_help() -> None:
    text = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    described = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.M))
    listed = dict(re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.M))
    assert {*described, "0"} == set(listed)
    for code in ("9", "10"):
        assert described[code].startswith("done and proven, but") and listed[code].startswith("done and proven, but")


def test_the_pages_name_the_format_of_the_database() -> None:
    state = (ROOT / "docs" / "reference" / "state.md").read_text(encoding="utf-8")
    recovery = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    assert re.findall(r"format (\d+) \(`PRAGMA user_version`\)", state) == [str(VERSION)]
    assert re.findall(r"user_version=(\d+)", recovery) == [str(VERSION)]


def test_the_commands_and_options_of_the_translation_tables_exist() -> None:
    """Each row's last cell is Tradewind's."""
    text = (ROOT / "docs" / "guides" / "coming-from.md").read_text(encoding="utf-8")
    cells = [line.rstrip(" |").rpartition("|")[2] for line in text.splitlines() if line.startswith("|")]
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    commands = [shlex.split(name)[1:] for name in named if name.startswith("tradewind ")]
    assert len(commands) > 20
    for words in commands:
        build_parser(words[0], import_module(f"tradewind.cli.{words[0]}")).parse_strictly(words[1:])
    options = {word for name in named for word in name.split() if word.startswith("--")}
    assert len(options) > 30
    assert not options - set(re.findall(r"--[\w-]+", (ROOT / "docs" / "reference" / "cli.md").read_text()))
