import re
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

import pytest

from testbed.places import nothing_exists
from tradewind.cli import VERBS, cp
from tradewind.cli.arguments import build_parser, parse
from tradewind.cli.cp import run as run_cp
from tradewind.cli.main import main
from tradewind.cli.options import access, accesses, object_filter, parse_cost, parse_time_ms, read_rules
from tradewind.cli.transferring import options_from, split_paths
from tradewind.engine.launch_spec import local_launch
from tradewind.engine.request import Options, resolve
from tradewind.errors import UsageError
from tradewind.model.job import FilterRule
from tradewind.model.store import Access


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def options(*words: str, verb: str = "cp") -> Options:
    return options_from(parse(verb, import_module(f"tradewind.cli.{verb}"), ["a", "b", *words]), recursive=True)


def test_the_library_and_the_command_line_have_the_same_defaults() -> None:
    assert options() == Options(recursive=True)


@pytest.mark.parametrize(
    ("words", "unsigned"),
    [([], False), (["--no-sign"], True), (["--src-no-sign"], True), (["--no-src-no-sign"], False)],
)
def test_a_switch_whose_name_begins_with_no_is_not_a_negation(words: list[str], unsigned: bool) -> None:
    assert access(parse("ls", import_module("tradewind.cli.ls"), ["s3://b", *words]), "src").anonymous is unsigned


@pytest.mark.parametrize(
    ("text", "compress", "codec"),
    [
        ("off", False, "auto"),
        ("no", False, "auto"),
        ("auto", True, "auto"),
        ("yes", True, "auto"),
        ("lz4", True, "lz4"),
        ("zstd", True, "zstd"),
        ("ZSTD:9", True, "zstd:9"),
    ],
)
def test_compression_is_off_or_a_codec(text: str, compress: bool, codec: str) -> None:
    made = options("--compress", text)
    assert (made.compress, made.codec) == (compress, codec)
    assert resolve("a", ("b",), made, local_launch().plan, exists=nothing_exists).codec == codec


@pytest.mark.parametrize("text", ["gzip", "zstd:", "zstd:0", "zstd:10", "zstd:-1", "zstd:1.5", "lz4:3", "a"])
def test_an_unknown_codec_is_refused_with_those_that_exist(text: str) -> None:
    with pytest.raises(UsageError, match=r"off, auto, lz4, zstd or zstd:LEVEL \(1 to 9\)"):
        options("--compress", text)
    with pytest.raises(UsageError, match="zstd:LEVEL"):
        resolve("a", ("b",), Options(compress=True, codec=text), local_launch().plan, exists=nothing_exists)


@pytest.mark.parametrize(("text", "expected"), [("on", True), ("off", False)])
def test_deduplication_is_on_or_off(text: str, expected: bool) -> None:
    made = options("--dedup", text)
    assert made.deduplicate is expected
    assert resolve("a", ("b",), made, local_launch().plan, exists=nothing_exists).deduplicate is expected
    assert not options().deduplicate
    assert options("--dedup", "on", "--dedup-window", "1GiB").dedup_window_bytes == 1 << 30
    with pytest.raises(UsageError, match="must be 1 MiB to 64 GiB"):
        resolve("a", ("b",), Options(dedup_window_bytes=1), local_launch().plan, exists=nothing_exists)
    with pytest.raises(UsageError, match="must be on or off, not 'maybe'"):
        options("--dedup", "maybe")


def test_rules_keep_their_order(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("# first\n- *.tmp\n\n+ keep.tmp\n")
    made = options("--include", "a", "--filter-from", str(file), "--exclude", "b")
    assert made.filter.rules == (
        FilterRule("include", "a"),
        FilterRule("exclude", "*.tmp"),
        FilterRule("include", "keep.tmp"),
        FilterRule("exclude", "b"),
    )


@pytest.mark.parametrize("text", ["*.tmp", "+", "! x"])
def test_unreadable_rules_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules"
    file.write_text(text)
    with pytest.raises(UsageError, match=":1:"):
        read_rules(str(file))


def test_sizes_times_and_rates() -> None:
    made = options(
        "--min-size", "1kB", "--max-size", "1GiB", "--newer", "2025-01-31T00:00:00Z", "--limit-rate", "8Mbit/s"
    )
    assert (made.filter.size_min_bytes, made.filter.size_max_bytes) == (1000, 1 << 30)
    assert made.filter.newer_than_unix_ms == 1_738_281_600_000
    assert made.limit_bytes_per_s == 1_000_000


def test_a_duration_means_that_long_ago() -> None:
    day_ms = 86_400_000
    now_ms = datetime.now(timezone.utc).timestamp() * 1000
    assert now_ms - 2 * day_ms < parse_time_ms("1d") <= now_ms
    with pytest.raises(UsageError):
        parse_time_ms("yesterday")


def test_the_options_of_both_sides_are_separate() -> None:
    made = options(
        "--src-endpoint", "http://127.0.0.1:1", "--dst-no-sign", "--dst-ca-bundle", "x.pem", "--no-src-path-style"
    )
    destination = made.destination
    assert isinstance(destination, Access)
    assert (made.source.endpoint, destination.endpoint) == ("http://127.0.0.1:1", None)
    assert (made.source.anonymous, destination.anonymous) == (False, True)
    assert made.source.path_style is False
    assert destination.ca_file == "x.pem"


def reached(*words: str) -> list[tuple[str | None, str | None]]:
    places = list(words[: next(i for i, word in enumerate((*words, "--")) if word.startswith("--"))])
    args = parse("cp", cp, ["a", *(part for place in places for part in ("--to", place)), *words[len(places) :]])
    split_paths(args)
    return [(one.endpoint, one.region) for one in accesses(args, "dst", args.destinations)]


def test_a_value_is_given_for_all_destinations_or_for_each() -> None:
    places = ("s3://b", "az://a/c", "dir/")
    assert reached("s3://b", "s3://c", "dir/", "--dst-endpoint", "http://x") == [("http://x", None)] * 3
    flags = ["--dst-endpoint", "http://x", "--dst-region", "eu", "--dst-endpoint", "http://y", "--dst-endpoint", "-"]
    assert reached(*places, *flags) == [("http://x", "eu"), ("http://y", "eu"), (None, "eu")]
    with pytest.raises(UsageError, match="2 times for 3"):
        reached(*places, "--dst-endpoint", "http://x", "--dst-endpoint", "http://y")
    with pytest.raises(UsageError, match="--dst-endpoint was given once for stores of different kinds: az and s3"):
        reached(*places, "--dst-endpoint", "http://x")


@pytest.mark.parametrize(
    "words",
    [
        ["--include", ""],
        ["--include", "  "],
        ["--exclude="],
        ["--exclude", "/"],
        ["--include", "//"],
        ["--filter-from", ""],
        ["--files-from", ""],
        ["--to", ""],
        ["--topology="],
    ],
)
def test_an_empty_argument_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="empty") as caught:
        options(*words)
    assert caught.value.hint is not None


@pytest.mark.parametrize(("source", "destination"), [("", "b"), ("a", ""), ("  ", "b")])
def test_an_empty_place_is_refused(source: str, destination: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        parse("cp", cp, [source, destination])
    with pytest.raises(UsageError, match="empty"):
        resolve(source, (destination,), Options(), local_launch().plan, exists=nothing_exists)


def test_an_empty_rule_of_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    for line in ("+ ", "-", "+ /", "-  "):
        file.write_text(f"# comment\n\n   \n{line}\n")
        with pytest.raises(UsageError, match=r"neither|empty"):
            options("--filter-from", str(file))


@pytest.mark.parametrize("glob", ["", " ", "\t", "/"])
def test_an_empty_rule_is_refused_from_python(glob: str) -> None:
    with pytest.raises(UsageError, match="empty rule"):
        FilterRule("include", glob)


def test_tags() -> None:
    assert options("--tag", "a=1", "--tag", "b=x=y").tags == {"a": "1", "b": "x=y"}
    with pytest.raises(UsageError):
        options("--tag", "a")


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("2.50USD", ("usd", 2.5)),
        ("$2", ("usd", 2.0)),
        ("3 usd", ("usd", 3.0)),
        ("0.03USD/GB", ("usd_per_gb", 0.03)),
        ("$0.03/GB", ("usd_per_gb", 0.03)),
    ],
)
def test_costs(text: str, cost: tuple[str, float]) -> None:
    assert parse_cost(text) == cost


@pytest.mark.parametrize("text", ["", "5", "0.03/GB", "-1USD", "0USD", "nanUSD", "1USD/h", "1USD/", "infUSD", "5EUR"])
def test_invalid_costs(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_cost(text)
    assert refused.value.hint == "2.50USD in total, or 0.03USD/GB on average"


def test_max_cost_is_a_ceiling_with_a_topology_and_otherwise_a_goal() -> None:
    assert options("--max-cost", "1USD", "--topology", "two-routes.json").max_cost_usd == 1
    assert options("--max-cost", "0.02USD/GB", "--topology", "two-routes.json").max_usd_per_gb == 0.02
    assert options("--max-cost", "1USD").max_cost_usd is None


@pytest.mark.parametrize("goal", [["--deadline", "1h"], ["--max-vms", "2"]])
def test_a_topology_excludes_planning_options(goal: list[str]) -> None:
    with pytest.raises(UsageError, match=f"{goal[0]} and --topology cannot be combined"):
        run_cp(parse("cp", import_module("tradewind.cli.cp"), ["s3://x/a", "s3://y/b", "--topology", "t.json", *goal]))


def test_a_goal_needs_both_regions() -> None:
    with pytest.raises(UsageError, match="a goal needs the regions: /x/a is not a cloud store") as refused:
        run_cp(parse("cp", import_module("tradewind.cli.cp"), ["/x/a", "/x/b", "--max-cost", "1USD"]))
    assert "--src-region" in str(refused.value.hint)


@pytest.mark.parametrize(
    "words",
    [["--limit-rate", "100"], ["--chunk-size", "1MiB"], ["--verify", "maybe"], ["--recursiv"], ["--concurrency", "x"]],
)
def test_mistakes_are_usage_errors(words: list[str]) -> None:
    with pytest.raises(UsageError):
        options(*words)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        options("--limit-rat", "1MB/s")
    assert caught.value.hint == "did you mean --limit-rate?"


@pytest.mark.parametrize(
    "words",
    [["-", "a", "b"], ["-", "-"], ["-", "s3://b/x/"], ["-r", "-", "s3://b/x"], ["a", "-", "b"], ["-r", "a", "-"]],
)
def test_invalid_pipes_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        run_cp(parse("cp", import_module("tradewind.cli.cp"), words))


def test_filters_are_empty_unless_given() -> None:
    args = parse("ls", import_module("tradewind.cli.ls"), ["x"])
    assert object_filter(args).rules == ()


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples_and_exit_codes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(verb, import_module(f"tradewind.cli.{verb}"), ["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "130  interrupted" in text


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        ("plan", ["aws:us-east-1", "aws:us-west-2", "--plot", "map.pdf"], "SVG or PNG"),
    ],
)
def test_options_of_other_tools_get_a_hint(verb: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(verb, import_module(f"tradewind.cli.{verb}"), words)


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize("verb", ["cp", "fleet", "doctor", "rm"])
def test_descriptions_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, verb: str, columns: int) -> None:
    monkeypatch.setattr("tradewind.cli.arguments._terminal_columns", lambda: columns)
    shown = build_parser(verb, import_module(f"tradewind.cli.{verb}")).format_help()
    prose = shown.partition("\npositional")[0].partition("\n\n")[2]
    assert len(prose) > 200 and max(map(len, prose.splitlines())) < columns
    assert not [line for line in shown.splitlines() if line.endswith("-")], "no name is broken at a hyphen"


def test_h_means_human_readable_sizes_in_listings() -> None:
    made = parse("ls", import_module("tradewind.cli.ls"), ["-lh", "x"])
    assert (made.long, made.human) == (True, True)
    assert parse("du", import_module("tradewind.cli.du"), ["-h", "x"]).human


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("serve --sate /state", "unknown option --sate", "did you mean --state?"),
        ("send --servce=http://here a b", "unknown option --servce", "did you mean --service?"),
        ("serve", "missing --state", "`tradewind serve --help` shows the usage"),
        ("receipt sign receipt.json", "ACTION sign: no such value", "ACTION is verify"),
        ("jobs lst", "ACTION lst: no such value", "did you mean list?"),
        ("fleet -- --up", "ACTION --up: no such value", "did you mean up?"),
        ("fleet status", "ACTION status: no such value", "ACTION is one of up, list, down, explain, sweep"),
        ("fleet", "missing ACTION", "ACTION is one of up, list, down, explain, sweep"),
        ("check one", "missing DST", "`tradewind check --help` shows the usage"),
    ],
)
def test_a_mistake_has_the_hint_that_helps(line: str, error: str, hint: str) -> None:
    verb, *words = line.split()
    with pytest.raises(UsageError) as caught:
        parse(verb, import_module(f"tradewind.cli.{verb}"), words)
    assert (str(caught.value), caught.value.hint) == (error, hint)


def test_an_option_without_its_side_names_both_sides() -> None:
    with pytest.raises(UsageError) as refused:
        parse("cp", cp, ["a", "b", "--endpoint", "http://h"])
    assert refused.value.hint == "did you mean --src-endpoint or --dst-endpoint?"


@pytest.mark.parametrize(
    ("verb", "hint"), [("limits", "`tradewind --help` lists all verbs"), ("synch", "did you mean `tradewind sync`?")]
)
def test_only_a_similar_verb_is_suggested(verb: str, hint: str) -> None:
    from tradewind.cli.main import _refuse_verb

    with pytest.raises(UsageError) as refused:
        _refuse_verb(verb)
    assert refused.value.hint == hint


@pytest.mark.parametrize("verb", VERBS)
def test_the_denial_of_no_sign_is_known_and_hidden(verb: str) -> None:
    parser = build_parser(verb, import_module(f"tradewind.cli.{verb}"))
    known = set(parser._option_string_actions)
    denied = {f"--no-{option.removeprefix('--')}" for option in known if re.fullmatch(r"--(src-|dst-)?no-sign", option)}
    assert denied <= known
    assert not re.search(r"--no-(src-|dst-)?no-", parser.format_help())


@pytest.mark.parametrize("option", ["--tag", "--metadata"])
def test_a_name_is_set_once(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([option, "a=1", option, "a=2"], f"{option} a: set twice"),
        ([option, "a"], f"{option} a: not NAME=VALUE"),
    ):
        assert main(["cp", "x", "s3://bucket/x", *words]) == 2
        assert f"error: {said}\nhint: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("--concurrency", "0", "--concurrency: must be 1 to 1024, not '0'"),
        ("--concurrency", "1025", "--concurrency: must be 1 to 1024, not '1025'"),
        ("--stall", "25h", "--stall: must be at most 24h, not '25h'"),
        ("--store-work", "2d", "--store-work: must be at most 24h, not '2d'"),
    ],
)
def test_a_number_out_of_range_is_refused_by_the_name_of_its_option(
    capsys: pytest.CaptureFixture[str], option: str, text: str, expected: str
) -> None:
    assert main(["cp", "a", "b", option, text]) == 2
    assert capsys.readouterr().err.startswith(f"error: {expected}\n")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["cp", "a", "b", "--exclude"], "--exclude needs a value", "write --exclude GLOB"),
        (["cp", "a", "b", "--via"], "--via needs a value", "--via is one of local, "),
        (["cp", "a", "b", "--min-size", "x"], "--min-size: a size needs a number and a unit, not 'x'", "for example "),
        (["cp", "a", "b", "--stall", "x"], "--stall: a duration needs a number and a unit, not 'x'", "for example "),
        (
            ["cp", "a", "b", "--limit-rate", "x"],
            "--limit-rate: a rate needs a number and a unit, not 'x'",
            "for example ",
        ),
        (["cp", "a", "b", "--concurrency", "x"], "--concurrency: must be a whole number, not 'x'", "`tradewind cp "),
        (["--verison"], "unknown option --verison", "did you mean `tradewind --version`?"),
        (["--nothing-near"], "unknown option --nothing-near", "`tradewind --help` lists all verbs"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_one_that_can(
    words: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}\nhint: {hint}")
