"""`cp --dry-run` between stores in different regions: the plan, its cost against direct, commands for other goals."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import S3Place
from testbed.servers import Server
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.task import ask_task

NEAR = ["--src-region", "aws:us-east-1", "--dst-region", "aws:us-east-2"]


#: Size of a sparse file, large enough to make machines worthwhile. It uses no space on the disk.
SPARSE_BYTES = 60_000_000_000


@pytest.fixture
def buckets(s3_server: Server, command: Command) -> tuple[S3Place, S3Place]:
    source, destination = S3Place(s3_server, command), S3Place(s3_server, command)
    source.put("d/x", b"x" * 400_000)
    return source, destination


def reached(place: S3Place, side: str) -> list[str]:
    """Return the flags of a place without its region, which these tests set."""
    flags = place.flags(side)
    at = flags.index(f"--{side}-region")
    return [*flags[:at], *flags[at + 2 :]]


def words(source: S3Place, destination: S3Place, *more: str) -> list[str]:
    flags = [*reached(source, "src"), *reached(destination, "dst")]
    return ["cp", "-r", f"{source.url}/d", f"{destination.url}/copy", *flags, *more]


@pytest.fixture
def much(command: Command, s3: S3Place) -> list[str]:
    """Return a command line that would move a large volume to a bucket, with one machine per region."""
    folder = command.home / "much"
    folder.mkdir()
    with (folder / "hole").open("wb") as file:
        file.truncate(SPARSE_BYTES)
    return ["cp", "-r", str(folder), f"{s3.url}/copy", *reached(s3, "dst"), *NEAR, "--max-vms", "1"]


def test_a_dry_run_and_plan_print_the_same_figures(command: Command, much: list[str]) -> None:
    copied = command.run(*much, "--dry-run", "--json", "--min-throughput", "1Gbit/s").expect(0)
    previewed = next(line for line in map(json.loads, copied.stdout.splitlines()) if line["event"] == "plan")
    volume, goal = ["--volume", "60GB", "--objects", "1", "--max-vms", "1"], ["--min-throughput", "1Gbit/s"]
    planned = json.loads(command.run("plan", *NEAR[1::2], *volume, *goal, "--json").expect(0).stdout)
    for document in (previewed, planned):
        del document["solve_s"]
    assert {name: previewed[name] for name in planned} == planned


@pytest.mark.slow
def test_the_plan_its_cost_against_direct_and_other_goals(command: Command, much: list[str], s3: S3Place) -> None:
    done = command.run(*much, "--dry-run", "--max-cost", "0.015USD/GB").expect(0)
    assert done.stdout.count("copy\t") == 1
    said = done.stderr
    assert "aws:us-east-1 → aws:us-east-2, 60.0 GB: fastest for at most $0.90" in said
    assert "  against direct" in said
    assert "without machines there (docs/guides/fleet.md) this machine moves everything" in said
    others = [shlex.split(line[line.index(" tradewind ") :]) for line in said.splitlines() if " tradewind cp " in line]
    assert [asked[-2] for asked in others] == ["--max-cost", "--min-throughput", "--deadline", "--max-vms"]
    assert all("--dry-run" in asked for asked in others)
    assert [asked.count("--max-cost") for asked in others] == [1, 0, 0, 1]
    again = command.run(*others[0][1:]).expect(0)
    assert "aws:us-east-1 → aws:us-east-2, 60.0 GB: fastest for at most $1.08" in again.stderr
    assert s3.sizes() == {}


@pytest.mark.slow
def test_json_has_the_plan_before_the_summary(command: Command, much: list[str]) -> None:
    done = command.run(*much, "--dry-run", "--json").expect(0)
    plan, summary = done.events[-2:]
    assert (plan["event"], summary["event"]) == ("plan", "done")
    assert plan["source"] == "aws:us-east-1"
    assert plan["volume_gb"] == pytest.approx(60)
    assert plan["cost_usd"]["total"] <= plan["direct"]["cost_usd"] * (1 + 1e-6)  # the default goal


@pytest.mark.slow
def test_a_goal_that_cannot_be_met_moves_nothing(command: Command, much: list[str], s3: S3Place) -> None:
    done = command.run(*much, "--max-cost", "0.10USD").expect(1)
    assert "error: $0.10 is not enough: the cheapest plan costs $0.6" in done.stderr
    assert re.search(r"hint: raise the ceiling to 0\.6\dUSD", done.stderr)
    assert s3.sizes() == {}
    assert command.jobs() == []


def test_a_small_transfer_does_not_wait_for_machines(command: Command, buckets: tuple[S3Place, S3Place]) -> None:
    done = command.run(*words(*buckets, *NEAR, "--deadline", "10min")).expect(0)
    assert re.search(r"no plan: machines take 50\.0 s to start, and 400 kB only 0\.1 s to move", done.stderr)
    assert buckets[1].sizes() == {"copy/x": 400_000}


def test_json_states_why_there_is_no_plan(command: Command, buckets: tuple[S3Place, S3Place]) -> None:
    done = command.run(*words(*buckets, *NEAR, "--dry-run", "--json")).expect(0)
    plan, summary = done.events[-2:]
    because = "machines take 50.0 s to start, and 400 kB only 0.1 s to move"
    assert plan == {"event": "plan", "status": "none", "because": because}
    assert summary["event"] == "done"


@pytest.mark.parametrize("why", [["--dry-run"], ["--deadline", "1h"]])
def test_an_unknown_region_is_refused_before_anything_is_listed(command: Command, why: list[str]) -> None:
    (command.home / "here").mkdir()
    (command.home / "here" / "x").write_bytes(b"abc")
    unknown = ["--src-region", "aws:us-est-1", "--dst-region", "gcp:europe-west4"]
    done = command.run("cp", "-r", "here", "there", *unknown, *why).expect(2)
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error == "error: unknown region aws:us-est-1"
    assert hint.startswith("hint: did you mean ")
    assert "aws:us-east-1" in hint
    assert not (command.home / "there").exists()


def test_without_a_goal_no_request_is_made_and_one_line_is_printed(
    command: Command, buckets: tuple[S3Place, S3Place]
) -> None:
    done = command.run(*words(*buckets, *NEAR)).expect(0)
    assert "from    aws:us-east-1 to aws:us-east-2; --dry-run shows" in done.stderr
    plain = command.run(*words(*buckets)).expect(0)
    assert "from    " not in plain.stderr


def test_the_region_of_a_compatible_server_is_not_its_location(
    command: Command, buckets: tuple[S3Place, S3Place]
) -> None:
    done = command.run(*words(*buckets, "--dry-run")).expect(0)
    assert (
        f"no plan: {buckets[0].url} is in no known cloud region; "
        "set --src-region PROVIDER:REGION and --dst-region PROVIDER:REGION\n" in done.stderr
    )
    refused = command.run(*words(*buckets, "--deadline", "1h")).expect(2)
    assert "error: a goal needs the regions: " in refused.stderr
    assert "hint: set the region, e.g. --src-region aws:us-east-1" in refused.stderr


@pytest.mark.parametrize(("known", "missing"), [("src", "dst"), ("dst", "src")])
def test_if_one_region_is_known_a_dry_run_explains_how_to_set_the_other(
    command: Command, known: str, missing: str
) -> None:
    places = {"src": command.home / "here", "dst": command.home / "there"}
    places["src"].mkdir()
    (places["src"] / "x").write_bytes(b"abc")
    copy = ["cp", "-r", *map(str, places.values())]
    done = command.run(*copy, "--dry-run", f"--{known}-region", "aws:us-east-1").expect(0)
    why = f"no plan: {places[missing]} is not a cloud store; set --{missing}-region PROVIDER:REGION\n"
    assert why in done.stderr
    assert "no plan" not in command.run(*copy, "--dry-run").expect(0).stderr
    assert "no plan" not in command.run(*copy, f"--{known}-region", "aws:us-east-1").expect(0).stderr


def test_the_plan_uses_the_catalog_of_the_configured_state_folder(command: Command, tmp_path: Path) -> None:
    (command.home / "x").write_bytes(b"abc")
    (command.home / "config.toml").write_text(f'state_dir = "{tmp_path / "mine"}"\n')
    table = tmp_path / "mine" / "catalog" / "links.csv"
    table.parent.mkdir(parents=True)
    table.write_text("src,dst,gbps\naws:us-east-1,aws:us-east-2,fast\n")
    done = command.run("cp", "x", "y", *NEAR, "--dry-run", "--config", "config.toml").expect(2)
    assert f"error: {table}: line 2, column gbps: 'fast' is not a number" in done.stderr


def test_one_region_needs_no_plan(command: Command, buckets: tuple[S3Place, S3Place]) -> None:
    same = ["--src-region", "aws:us-east-1", "--dst-region", "aws:us-east-1"]
    done = command.run(*words(*buckets, *same, "--dry-run")).expect(0)
    assert "no plan: source and destination are both in aws:us-east-1" in done.stderr


@pytest.mark.parametrize(
    ("more", "words_"),
    [
        (["--max-cost", "5USD", "--deadline", "1h"], "one goal at a time, not --max-cost and --deadline"),
        (["--max-vms", "0"], "a number of machines, at least 1"),
        (["--min-throughput", "20"], "800Mbit/s"),
        (["--src-region", "aws:", "--dst-region", "aws:us-east-1", "--deadline", "1h"], "'aws:' is not a region"),
        (["--src-region", "aws:us-eest-1", "--dst-region", "aws:us-east-2", "--dry-run"], "us-eest-1"),
    ],
)
def test_goals_that_make_no_sense(
    command: Command, buckets: tuple[S3Place, S3Place], more: list[str], words_: str
) -> None:
    done = command.run(*words(*buckets, *more)).expect(2)
    assert words_ in done.stderr
    assert buckets[1].sizes() == {}


def test_stores_are_asked_for_their_regions(
    moto_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from testbed.s3 import S3

    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)
    S3(moto_server.endpoint, moto_server.access_key, moto_server.secret_key).create_bucket("here")
    S3(moto_server.endpoint, moto_server.access_key, moto_server.secret_key).create_bucket("paris", "eu-west-3")
    stores = [
        {"url": "s3://here", "endpoint": moto_server.endpoint, "region": "us-east-1"},
        {"url": "s3://paris", "endpoint": moto_server.endpoint, "region": "eu-west-3"},
        {"url": "s3://absent", "endpoint": moto_server.endpoint, "region": "us-east-1"},
        {"url": f"file://{tmp_path}"},
    ]
    answers = ask_task(find_gateway(), {"task": "locate", "stores": stores})
    assert [answer.get("name") for answer in answers] == ["us-east-1", "eu-west-3", None, None]
    assert "absent" in answers[2]["error"]
    assert all("provider" not in answer for answer in answers)
    assert answers[3] == {"url": f"file://{tmp_path}"}


def test_a_ceiling_that_has_no_effect_is_mentioned(command: Command, buckets: tuple[S3Place, S3Place]) -> None:
    done = command.run(*words(*buckets, *NEAR, "--max-cost", "5USD")).expect(0)
    assert "note: --max-cost limits only the plan" in done.stderr
    assert "--max-cost" not in command.run(*words(*buckets, *NEAR, "--quiet", "--max-cost", "5USD")).expect(0).stderr
