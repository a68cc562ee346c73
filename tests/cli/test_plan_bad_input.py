"""Bad input to `plan` and `catalog import`: one clear line, a hint, the exit code, and nothing half-loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tradewind.cli.main import main

LINKS = "src,dst,gbps\np:a,p:b,4\np:b,p:c,8\np:a,p:d,0\n"
PRICES = "src,dst,usd_per_gb\np:a,p:b,0.02\np:b,p:c,0.05\np:a,p:d,0.02\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder. Its state folder does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problem(folder: Path, destination: str, goal: dict[str, object]) -> str:
    (folder / "links.csv").write_text(LINKS)
    (folder / "prices.csv").write_text(PRICES)
    document = {
        "throughput_csv": "links.csv",
        "price_csv": "prices.csv",
        "providers": {"p": {"egress_gbps": 5, "ingress_gbps": 10, "vm_usd_per_hour": 1.0}},
        "vm_limit": 2,
        "source": "p:a",
        "destination": destination,
        "volume_gb": 50,
        "goal": goal,
    }
    (folder / "problem.json").write_text(json.dumps(document))
    return "problem.json"


def refused(capsys: pytest.CaptureFixture[str], words: Sequence[str], code: int) -> tuple[str, str]:
    """Check the exit code; return the error's line and the hint's, if there is one."""
    assert main([*words]) == code
    said = capsys.readouterr()
    assert said.out == ""
    error, _, hint = said.err.removesuffix("\n").partition("\n")
    assert error.startswith("error: ")
    assert "\n" not in hint
    assert not hint or hint.startswith("hint: ")
    return error, hint


@pytest.mark.parametrize(
    ("regions", "error", "hint"),
    [
        (["aws:us-eest-1", "gcp:us-east1"], "unknown region aws:us-eest-1", "aws:us-east-1"),
        (["aws:US-EAST-2", "gcp:us-east1"], "unknown region aws:US-EAST-2", "did you mean aws:us-east-2"),
        (
            ["aws:us-east-1", "gcp:us-east1", "gcp:us-east1"],
            "gcp:us-east1 is named twice",
            "name each destination once",
        ),
        (["aws:us-east-1", "gcp:europe-west44"], "unknown region gcp:europe-west44", "gcp:europe-west4"),
        (["aws:frankfurt", "gcp:us-east1"], "unknown region aws:frankfurt", "did you mean aws:eu-central-1"),
        (["aws:nowhere-at-all-9", "gcp:us-east1"], "unknown region aws:nowhere-at-all-9", "catalog show"),
        (
            ["us-east-1", "gcp:us-east1"],
            "'us-east-1' is not a region; write provider:name",
            "did you mean aws:us-east-1",
        ),
        (["frankfurt", "gcp:us-east1"], "'frankfurt' is not a region; write provider:name", "aws:eu-central-1"),
        (["zzz", "gcp:us-east1"], "'zzz' is not a region; write provider:name", "catalog show"),
        (["s3://b", "gs://b"], "'s3://b' is a store or path, not a region", "`tradewind cp SRC DST --dry-run`"),
        (["/data", "gs://b"], "'/data' is a store or path, not a region", "`tradewind cp SRC DST --dry-run`"),
        (["aws:us-east-1", "gs://b"], "'gs://b' is a store or path, not a region", "`tradewind cp SRC DST --dry-run`"),
        (["aws:us-east-1", "aws:us-east-1"], "source and destination are both aws:us-east-1", "nothing to plan"),
        (["aws:us-east-1"], "a plan needs a source and a destination region", "--problem"),
    ],
)
def test_regions(folder: Path, capsys: pytest.CaptureFixture[str], regions: list[str], error: str, hint: str) -> None:
    said = refused(capsys, ["plan", *regions], 2)
    assert error in said[0]
    assert hint in said[1]


@pytest.mark.parametrize(
    ("option", "value", "example"),
    [
        ("--min-throughput", "20", "800Mbit/s"),
        ("--min-throughput", "20Gbit", "800Mbit/s"),
        ("--max-cost", "5", "2.50USD"),
        ("--max-cost", "0.03/GB", "0.03USD/GB"),
        ("--max-vms", "0", "at least 1"),
        ("--max-vms", "2.5", "a number of machines"),
        ("--compression-ratio", "1.5", "at most 1"),
        ("--compression-ratio", "half", "0.6"),
        ("--tier", "cheap", "premium, standard or best"),
        ("--max-cost", "-5USD", "more than zero"),
        ("--deadline", "30", "90s"),
        ("--volume", "5", "5GB"),
        ("--volume", "0B", "more than zero"),
    ],
)
def test_goals_without_a_unit_or_with_invalid_values(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, example: str
) -> None:
    error, hint = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1", f"{option}={value}"], 2)
    assert option in error
    assert value in error
    assert example in error + hint
    assert hint


@pytest.mark.parametrize(
    ("option", "value", "what"),
    [
        ("--max-cost", "-1USD", "an amount of money must be more than zero, not '-1USD'"),
        ("--max-cost", "-$.5", "an amount of money"),
        ("--volume", "-3GB", "an amount must be above zero, not '-3GB'"),
        ("--min-throughput", "-.5Gbit/s", "an amount must be above zero, not '-.5Gbit/s'"),
        ("--deadline", "-30min", "an amount must be above zero, not '-30min'"),
        ("--max-vms", "-2", "a number of machines, at least 1, not '-2'"),
    ],
)
def test_a_negative_amount_is_not_parsed_as_an_option(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, what: str
) -> None:
    error, hint = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1", option, value], 2)
    assert error.startswith(f"error: {option}: {what}")
    assert hint


def test_an_option_without_its_amount_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, hint = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1", "--max-cost", "--explain"], 2)
    assert error == "error: --max-cost needs a value"
    assert hint.startswith("hint: write --max-cost ")


@pytest.mark.parametrize(
    ("quota", "words", "error", "hint"),
    [
        (0, [], "the account's quota at aws:us-east-1 is 0 machines", "catalog show aws:us-east-1"),
        (
            1,
            ["--vm-type", "m5.xlarge"],
            "none of the requested machine types is available in gcp:us-east1",
            "n2-standard-4",
        ),
    ],
)
def test_planning_a_region_without_machines_explains_why(
    folder: Path, capsys: pytest.CaptureFixture[str], quota: int, words: list[str], error: str, hint: str
) -> None:
    (folder / "quotas.csv").write_text(f"region,machines\naws:us-east-1,{quota}\n")
    assert main(["catalog", "import", "quotas.csv", "-q"]) == 0
    said = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1", *words], 2)
    assert said[0] == f"error: {error}"
    assert hint in said[1]


def test_a_region_without_machine_types_is_not_called_unknown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.csv").write_text("src,dst,gbps\nsite:lab,aws:us-east-1,2\n")
    assert main(["catalog", "import", "mine.csv", "-q"]) == 0
    error, hint = refused(capsys, ["plan", "site:lab", "aws:us-east-1"], 2)
    assert error == "error: site:lab cannot be planned for: the catalog has no machine type there"
    assert "catalog show site:lab" in hint


def test_a_ceiling_per_gb_is_multiplied_by_the_volume(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = ["--volume", "500GB", "--max-vms", "1", "--max-cost"]
    assert main(["plan", "aws:us-east-1", "aws:us-east-2", *goal, "0.02USD/GB", "--json"]) == 0
    per_gb = json.loads(capsys.readouterr().out)
    assert per_gb["goal"] == {"max_cost_usd": 10.0}
    assert per_gb["cost_usd"]["total"] <= 10.0


def test_two_goals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, _ = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1", "--cheapest", "--max-cost", "5USD"], 2)
    assert "not allowed with" in error


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["aws:us-east-1", "gcp:us-east1"], "source"),
        (["--volume", "1GB"], "volume_gb"),
        (["--min-throughput", "3Gbit/s"], "goal"),
        (["--max-cost", "3USD"], "goal"),
        (["--deadline", "3h"], "goal"),
        (["--cheapest"], "goal"),
        (["--fastest"], "goal"),
        (["--soonest"], "goal"),
        (["--exactly"], "goal"),
        (["--max-vms", "3"], "vm_limit"),
        (["--vm-type", "m5.xlarge"], "providers"),
        (["--spot"], "providers"),
        (["--compression-ratio", "1"], ""),
        (["--egress-used", "0GB"], ""),
        (["--tier", "premium"], ""),
    ],
)
def test_options_that_a_problem_file_sets_are_refused_beside_it(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], key: str
) -> None:
    file = problem(folder, "p:c", {"cheapest": True})
    error, hint = refused(capsys, ["plan", "--problem", file, *words], 2)
    option = words[0] if words[0].startswith("--") else "SRC"
    assert error == f"error: {option} cannot be combined with --problem: the problem file has all settings"
    assert hint == (f"hint: change '{key}' in {file}, or leave {option} out" if key else f"hint: leave {option} out")


@pytest.mark.parametrize(
    ("figure", "column", "what"),
    [
        ("site:b,site:c,-3", "gbps", "-3 is not between 0 and 400"),
        ("site:b,site:c,5000000000", "gbps", "5000000000 is not between"),
        ("site:b,site:c,fast", "gbps", "'fast' is not a number"),
        ("site:b,,3", "dst", "is missing"),
        ("site:b,c,3", "dst", "'c' is not a region"),
    ],
)
def test_a_bad_figure_in_a_table_is_located_and_nothing_is_imported(
    folder: Path, capsys: pytest.CaptureFixture[str], figure: str, column: str, what: str
) -> None:
    (folder / "mine.csv").write_text(f"src,dst,gbps\nsite:a,site:b,4\n{figure}\n")
    error, _ = refused(capsys, ["catalog", "import", "mine.csv"], 2)
    assert f"mine.csv: line 3, column {column}: {what}" in error
    assert not (folder / "state").exists()


def test_a_bad_price_is_located_and_nothing_is_imported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.csv").write_text("src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0.09\naws:us-east-2,p:b,900\n")
    error, _ = refused(capsys, ["catalog", "import", "mine.csv"], 2)
    assert "mine.csv: line 3, column usd_per_gb: 900 is not between 0 and 5" in error
    assert not (folder / "state").exists()


def test_a_damaged_catalog_prevents_planning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = folder / "state" / "tradewind" / "catalog"
    catalog.mkdir(parents=True)
    (catalog / "links.csv").write_text("src,dst,gbps\naws:us-east-1,gcp:us-east1,-1\n")
    error, _ = refused(capsys, ["plan", "aws:us-east-1", "gcp:us-east1"], 2)
    assert f"{catalog / 'links.csv'}: line 2, column gbps: -1 is not between" in error


def test_a_ceiling_below_the_cheapest_plan_states_the_cheapest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint = refused(capsys, ["plan", "--problem", problem(folder, "p:c", {"max_cost_usd": 2})], 1)
    assert "$2.00 is not enough: the cheapest plan costs $3.5" in error
    usd = float(hint.removeprefix("hint: raise the ceiling to ").removesuffix("USD"))
    assert main(["plan", "--problem", problem(folder, "p:c", {"max_cost_usd": usd})]) == 0


def test_an_infeasible_rate_states_the_highest_rate_and_its_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint = refused(capsys, ["plan", "--problem", problem(folder, "p:c", {"min_throughput_gbps": 50})], 1)
    assert "50 Gbit/s is out of reach: the fastest plan moves 8 Gbit/s; limited by the links out of p:a" in error
    assert hint == "hint: ask for at most 8Gbit/s, or allow more machines (vm_limit of the problem file)"


@pytest.mark.parametrize("goal", [["--min-throughput", "500Gbit/s"], ["--deadline", "71s"]])
def test_more_machines_are_suggested_as_an_option(
    folder: Path, capsys: pytest.CaptureFixture[str], goal: list[str]
) -> None:
    pair = ["plan", "aws:us-east-1", "aws:us-east-2", "--vm-type", "m5.xlarge", "--max-vms", "1", "--volume", "500GB"]
    _, hint = refused(capsys, [*pair, *goal], 1)
    assert hint.endswith("more machines (--max-vms)")


def test_the_hint_names_the_limit_in_the_problem_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--problem", problem(folder, "p:c", {"fastest": True}), "--explain"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "one more machine in every region (vm_limit of the problem file): 12 Gbit/s" in text
    assert "--max-vms" not in text


def test_an_infeasible_deadline_states_the_earliest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, hint = refused(capsys, ["plan", "--problem", problem(folder, "p:c", {"deadline_s": 10})], 1)
    assert "10.0 s is too short: the earliest finish is 50.0 s" in error
    assert hint == "hint: allow 50s, or more machines (vm_limit of the problem file)"


def test_a_pair_without_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, hint = refused(capsys, ["plan", "--problem", problem(folder, "p:d", {"cheapest": True})], 1)
    assert "no links are known from p:a to p:d" in error
    assert "catalog show p:a p:d" in hint
    code = main(["plan", "--problem", problem(folder, "p:d", {"cheapest": True}), "--json"])
    assert (code, json.loads(capsys.readouterr().out)["status"]) == (1, "infeasible")


@pytest.mark.parametrize(
    ("key", "value"),
    [("volume_gb", -3), ("vm_limit", 1.5), ("unknown", 1), ("providers", {}), ("throughput_csv", "none.csv")],
)
def test_errors_in_a_problem_file_point_to_its_format(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    name = problem(folder, "p:b", {"cheapest": True})
    document = json.loads(Path(name).read_text())
    Path(name).write_text(json.dumps(document | {key: value}))
    _, hint = refused(capsys, ["plan", "--problem", name], 2)
    assert "docs/concepts/planner-problem.md" in hint


def test_catalog_show_accepts_the_same_region_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error, hint = refused(capsys, ["catalog", "show", "us-east-1"], 2)
    assert error.startswith("error: 'us-east-1' is not a region")
    assert hint.startswith("hint: did you mean aws:us-east-1")


def test_catalog_show_refuses_more_than_two_regions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, hint = refused(capsys, ["catalog", "show", "aws:us-east-1", "aws:us-east-2", "aws:us-west-1"], 2)
    assert "tradewind catalog show aws:us-east-1 gcp:europe-west4" in hint
