"""The list of jobs: its filters and times, and shells that complete ids from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.trees import write_tree
from tradewind.cli import jobs
from tradewind.cli.main import main


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path / "tree", {"a": 10_000, "d/b": 10_000})
    return tmp_path / "tree"


def test_jobs_are_listed_by_state_time_and_number(command: Command, tree: Path, tmp_path: Path) -> None:
    command.environment["TZ"] = "Asia/Kolkata"
    command.run("cp", "-r", tree, tmp_path / "one").expect(0)
    command.run("cp", "-r", "--max-bytes", "1KB", tree, tmp_path / "two").expect(8)
    done, stopped = (job["id"] for job in command.jobs())

    def listed(*words: str) -> list[str]:
        lines = command.run("jobs", "list", *words).expect(0).stdout.splitlines()
        return [line.split()[0] for line in lines[1:]]

    assert listed() == [done, stopped]
    assert listed("--state", "done") == [done]
    assert listed("--state", "interrupted", "--state", "failed") == [stopped]
    assert listed("--last", "1") == [stopped]
    assert listed("--last", "1", "--state", "done") == [done]
    assert listed("--newer", "1h") == [done, stopped] and listed("--older", "1h") == []
    assert command.run("jobs", "list", "--older", "1h").stdout == "", "a heading alone says nothing"
    assert command.run("jobs", "list", "--last", "1", "--json").stdout.count("\n") == 1
    assert " IST " in command.run("jobs", "list").stdout
    refused = command.run("jobs", "list", "--state", "lost").expect(2).stderr
    assert "running, done, failed, interrupted, paused, cancelled" in refused


def test_only_the_latest_jobs_are_listed_unless_all_are_wanted(
    command: Command, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "three"):
        command.run("cp", tree / "a", tmp_path / name).expect(0)
    ids = [job["id"] for job in command.jobs()]
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(command.state))
    monkeypatch.setattr(jobs, "LISTED_DEFAULT", 2)

    def listed(*words: str) -> tuple[list[str], str]:
        assert main(["jobs", "list", *words]) == 0
        out, err = capsys.readouterr()
        return [line.split()[0] for line in out.splitlines()[1:]], err

    assert listed() == (ids[1:], "1 earlier job: --all lists all\n")
    assert listed("--quiet") == (ids[1:], "")
    assert listed("--all") == listed("--last", "3") == (ids, "")
    assert listed("--last", "1") == (ids[2:], "")
    assert main(["jobs", "list", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3, "scripts get all"
    assert main(["jobs", "list", "--all", "--last", "1"]) == 2
    assert main(["jobs", "show", ids[0], "--all"]) == 2


def test_old_jobs_are_pruned_by_command_and_by_setting(command: Command, tree: Path, tmp_path: Path) -> None:
    command.run("cp", "-r", tree, tmp_path / "one").expect(0)
    command.run("cp", "-r", "--max-bytes", "1KB", tree, tmp_path / "two").expect(8)
    done, stopped = (job["id"] for job in command.jobs())
    assert command.run("jobs", "prune", "--older", "30d").expect(0).stdout == "removed 0 jobs\n"
    assert command.run("jobs", "prune", "--older", "0s", "--dry-run").expect(0).stdout == "would remove 1 job\n"
    assert [job["id"] for job in command.jobs()] == [done, stopped]
    command.configure('jobs_prune_after = "0s"')
    copied = command.run("cp", tree / "a", tmp_path / "a").expect(0)
    assert "note: removed 2 jobs (jobs_prune_after)" in copied.stderr
    assert [job["id"] for job in command.jobs()] == [stopped]


def test_jobs_prune_needs_an_age(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "prune"]) == 2
    assert "hint: for example --older 30d" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option", "owners"),
    [
        (["show", "20250131-120000-k3f9t", "--last", "1"], "--last", "`jobs list`"),
        (["list", "--cost"], "--cost", "`jobs show`"),
        (["cancel", "20250131-120000-k3f9t", "--max-delete", "1"], "--max-delete", "`jobs resume` and `jobs attach`"),
        (["pause", "20250131-120000-k3f9t", "--keep-logs"], "--keep-logs", "`jobs resume` and `jobs attach`"),
    ],
)
def test_options_of_one_action_are_refused_elsewhere(
    capsys: pytest.CaptureFixture[str], words: list[str], option: str, owners: str
) -> None:
    assert main(["jobs", *words]) == 2
    refused = capsys.readouterr().err
    assert f"jobs {words[0]} takes no {option}\n" in refused and f"hint: {option} belongs to {owners}\n" in refused


def test_a_configured_limit_of_deletions_does_not_disturb_a_list(command: Command) -> None:
    command.configure("max_delete = 5")
    command.run("jobs", "list").expect(0)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_the_ids_of_jobs(command: Command, tree: Path, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command.run("cp", "-r", tree, tmp_path / "copy").expect(0)
    (job,) = command.jobs()
    script = tmp_path / "completion"
    script.write_text(command.run("completion", shell).expect(0).stdout)
    environment = command.full_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ask = {
        "fish": f'source {script}; complete -C "tradewind jobs show "',
        # Without a terminal there is no completion system: only the function for the ids is called.
        "zsh": f"compdef() {{ :; }}; _arguments() {{ :; }}; _describe() {{ print -l -- ${{(P)2}}; }}; source {script}; "
        "_tradewind_jobs",
    }[shell]
    done = subprocess.run([shell, "-c", ask], env=environment, capture_output=True, text=True)
    assert job["id"] in done.stdout.split(), done


def test_bash_completes_the_ids_of_jobs(command: Command, tree: Path, tmp_path: Path) -> None:
    command.run("cp", "-r", tree, tmp_path / "copy").expect(0)
    (job,) = command.jobs()
    script = command.run("completion", "bash").expect(0).stdout
    ask = f'{script}\nCOMP_WORDS=(tradewind jobs show 2); COMP_CWORD=3; _tradewind; echo "${{COMPREPLY[@]}}"'
    environment = command.full_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(["bash", "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [job["id"]]
