"""The command's behaviour for its user: fast, clear, quiet on request, and the same from Python."""

from __future__ import annotations

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tradewind
from testbed.drive import Command, find_binary
from testbed.places import S3Place
from testbed.trees import MIB
from tradewind.errors import Interrupted, SourceNotFound, UsageError

VERSION_CPU_S_MAX = 0.15
ONE_FILE_CPU_S_MAX = 0.4


def children_cpu_s(run: Callable[[], object]) -> float:
    """Return the CPU time of `run`'s descendants, the best of three runs because the machine may be busy."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(3))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "one.txt").write_text("one")
    (folder / "a" / "b" / "two.tmp").write_text("two")
    (folder / "three.txt").write_bytes(b"3" * 300_000)
    return folder


def test_version_is_fast(command: Command) -> None:
    assert children_cpu_s(lambda: command.run("--version").expect(0)) < VERSION_CPU_S_MAX


def test_copying_one_file_is_fast(command: Command, tree: Path, tmp_path: Path) -> None:
    assert (
        children_cpu_s(lambda: command.run("cp", tree / "three.txt", tmp_path / "copy").expect(0)) < ONE_FILE_CPU_S_MAX
    )
    assert (tmp_path / "copy").read_bytes() == b"3" * 300_000


def test_the_story_of_a_copy(command: Command, tree: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, tmp_path / "copy").expect(0)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == f"copy    {tree} → {tmp_path / 'copy'}"
    assert lines[1].startswith("via     this machine")
    assert lines[2].startswith("moved   3 objects, 300 kB in ")
    assert lines[3].startswith("proven  3 by ")
    assert len(lines) == 4
    assert command.run("-q", "cp", "-r", tree, tmp_path / "other").expect(0).stderr == ""


def test_json_begins_with_the_job_and_ends_with_the_summary(command: Command, tree: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, tmp_path / "copy", "--json").expect(0)
    assert done.stderr == ""
    assert done.events[0]["event"] == "started"
    assert done.summary["job_id"] == done.events[0]["job_id"]
    assert done.summary["exit_code"] == 0
    assert done.summary["progress"]["objects_done"] == 3


def test_jobs_are_listed_and_shown(command: Command, tree: Path, tmp_path: Path) -> None:
    command.run("cp", "-r", tree, tmp_path / "copy").expect(0)
    (job,) = command.jobs()
    assert (job["state"], job["source"], job["destinations"]) == ("done", str(tree), [str(tmp_path / "copy")])
    assert (job["objects_done"], job["bytes_done"]) == (3, 300_006)
    heading, line = command.run("jobs", "list").expect(0).stdout.splitlines()
    assert heading.split() == ["job", "state", "created", "verb", "objects", "bytes", "from", "→", "to"]
    assert line.split()[:2] == [job["id"], "done"] and line.endswith(f"{tree} → {tmp_path / 'copy'}")
    assert line.index("cp") == heading.index("verb")
    shown = command.run("jobs", "show", job["id"]).expect(0).stdout
    assert "3 done of 3, 0 failed" in shown
    assert "resume" not in shown
    refused = command.run("jobs", "resume", job["id"]).expect(2)
    assert "nothing to resume" in refused.stderr
    command.run("jobs", "cancel", job["id"]).expect(2)
    assert "no job nothing" in command.run("jobs", "show", "nothing").expect(3).stderr


def test_dry_runs_and_mistakes_leave_no_record(command: Command, tree: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, "s3://bucket/x", "--dry-run", "--dst-endpoint", "http://127.0.0.1:1").expect(0)
    assert sorted(line.split("\t")[0] for line in done.stdout.splitlines()) == ["copy"] * 3
    command.run("cp", tree, tmp_path / "copy").expect(2)
    assert command.jobs() == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["cp", "/no/such/file", "x"], 3, "error:"),
        (["cp", "a"], 2, "DST"),
        (["cp", "a", "ftp://x/y"], 2, "unknown scheme"),
        (["cp", "a", "b", "--limit-rate", "100"], 2, "MB/s"),
        (["cpp"], 2, "did you mean `tradewind cp`?"),
        (["sync", "a", "b", "--delet"], 2, "did you mean --delete?"),
        (["ls", "-"], 2, "not stores"),
        (["ls", "S3:/b"], 2, "write s3://b"),
        (["cp", "-r", "x", "s3//b/x"], 2, "write s3://b/x"),
        (["cp", "-r", "/nowhere", "gs:b"], 2, "write gs://b"),
        (["config"], 2, "ACTION is show"),
        (["jobs"], 2, "ACTION is one of list, show, attach, wait"),
        (["completion"], 2, "SHELL is one of bash, zsh, fish"),
        (["cp", "-R", "a", "b"], 2, "write -r"),
        (["sync", "-r", "a", "b"], 2, "sync always copies everything below SRC"),
        (["du", "-r", "a"], 2, "du always counts everything below URL"),
        (["check", "-r", "a", "b"], 2, "check always compares everything below SRC"),
        (["cp", "-r", "/nowhere/*", "b"], 3, "no such directory"),
        (["cp", "/nowhere/*.log", "b/"], 3, "no such directory"),
        ([], 2, ""),
    ],
)
def test_mistakes_are_one_line_and_a_hint(command: Command, arguments: list[str], code: int, said: str) -> None:
    done = command.run(*arguments).expect(code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_begin_with_a_dash_follow_two_dashes(command: Command, tmp_path: Path) -> None:
    (command.home / "-dash").write_text("dash")  # The command runs in its home.
    command.run("cp", "--", "-dash", tmp_path / "copy").expect(0)
    assert (tmp_path / "copy").read_text() == "dash"
    assert command.run("cat", "--", "-dash").expect(0).stdout == "dash"
    assert "unknown option -dash" in command.run("cp", "-dash", tmp_path / "copy").expect(2).stderr


def test_a_full_disk_names_the_job_to_resume(command: Command, tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(30 * MIB))
    done = command.run("cp", tmp_path / "large", small_disk / "large").expect(1)
    assert f"`tradewind jobs resume {command.jobs()[0]['id']}`" in done.stderr


def test_hints_match_the_failure(command: Command, s3: S3Place, tree: Path, tmp_path: Path) -> None:
    flags = s3.flags("src")
    dead = ["--endpoint", "http://127.0.0.1:1", *flags[2:]]
    done = command.run("ls", "s3://bucket", *dead).expect(5)
    assert "tradewind doctor" in done.stderr
    assert "resume" not in done.stderr
    gone = command.run("cp", "s3://no-such-bucket/x", tmp_path / "x", *flags).expect(3)
    assert "check the bucket's name" in gone.stderr
    bad = command.run("ls", "-r", tree, "--include", "a[").expect(2)
    assert "a[" in bad.stderr
    assert "**" not in bad.stderr


def test_explain_states_the_reason(command: Command, tree: Path) -> None:
    rules = ["--exclude", "**.tmp", "--include", "a/**"]
    said = command.run("cp", "-r", tree, "x", *rules, "--explain", "a/b/two.tmp").expect(0).stdout
    assert "a/**" in said
    said = command.run("cp", "-r", tree, "x", "--min-size", "1kB", "--explain", "a/one.txt").expect(0).stdout
    assert "smaller than --min-size" in said


def test_explain_reads_the_objects_size_and_time(command: Command, tree: Path) -> None:
    old = command.run("cp", "-r", tree, "x", "--newer", "1d", "--explain", "three.txt").expect(0)
    assert old.stdout.startswith("included: three.txt")
    assert old.stderr == ""
    os.utime(tree / "three.txt", (0, 0))
    assert "before --newer" in command.run("cp", "-r", tree, "x", "--newer", "1d", "--explain", "three.txt").stdout
    gone = command.run("cp", "-r", tree, "x", "--explain", "no-such").expect(0)
    assert "note: no object has this name" in gone.stderr
    alone = command.run("cp", tree / "three.txt", "x", "--explain", "three.txt").expect(0)
    assert alone.stdout == "included: three.txt: it is the object that was named\n"
    assert command.run("cp", tree / "three.txt", "x", "--explain", "four").expect(0).stdout.startswith("excluded: four")


def test_explain_compares_as_sync_does(command: Command, tree: Path, s3: S3Place) -> None:
    def said(place: str | Path, *words: str) -> str:
        done = command.run("sync", tree, place, "--explain", "three.txt", *words).expect(0)
        return done.stdout.splitlines()[1].split(":")[0] + "; " + done.stdout.rsplit(": ", 1)[1].strip()

    # Set a time in another second than the copies: within the same second, stores with whole seconds need checksums.
    os.utime(tree / "three.txt", (1_600_000_000, 1_600_000_000))
    copy = tree.parent / "copy"
    assert said(copy) == "would be copied; nothing exists there"
    command.run("sync", tree, copy).expect(0)
    command.run("sync", tree, s3.url + "/x", *s3.flags("dst")).expect(0)
    assert said(copy) == "would be skipped; same size and time"
    assert said(s3.url + "/x", *s3.flags("dst")) == "would be skipped; same size, and not older than the source"
    by_sum = said(s3.url + "/x", "--compare", "checksum", *s3.flags("dst"))
    assert by_sum == "would be skipped; same size and checksum"
    (tree / "three.txt").write_text("of another length")
    assert said(copy) == "would be copied; the size differs"


def test_a_reader_that_closes_early_is_not_an_error(command: Command, tree: Path) -> None:
    pipe = (
        f"set -o pipefail; {command.binary} ls -r {tree} --json | head -n 1; {command.binary} config show | head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", pipe], env=command.full_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid_in_their_shells(command: Command, shell: str) -> None:
    script = command.run("completion", shell).expect(0).stdout
    assert "limit-rate" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_bash_completes_verbs_and_options(command: Command) -> None:
    script = command.run("completion", "bash").expect(0).stdout
    ask = 'COMP_WORDS=(tradewind {}); COMP_CWORD={}; _tradewind; echo "${{COMPREPLY[@]}}"'
    for words, position, answer in (("jo", 1, "jobs"), ("cp --limit", 2, "--limit-rate"), ("jobs res", 2, "resume")):
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask.format(words, position)}"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [answer]


def test_doubled_negations_are_taken_but_not_shown(command: Command, tree: Path) -> None:
    command.environment["TRADEWIND_SRC_NO_SIGN"] = "yes"
    assert "--no-no-sign" not in command.run("ls", "--help").expect(0).stdout
    assert "--no-no-sign" not in command.run("completion", "bash").expect(0).stdout
    command.run("ls", "--no-no-sign", tree).expect(0)


def test_doctor_and_settings(command: Command) -> None:
    done = command.run("doctor")
    assert "ok   gateway" in done.stdout
    command.environment["TRADEWIND_LIMIT_RATE"] = "5MB/s"
    shown = command.run("config", "show", "--json").expect(0).stdout
    rows = {row["setting"]: row for row in map(json.loads, shown.splitlines())}
    assert rows["limit_rate"] == {"setting": "limit_rate", "value": "5MB/s", "origin": "TRADEWIND_LIMIT_RATE"}
    command.environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9000"
    command.environment["TRADEWIND_LIMITRATE"] = "5MB/s"
    done = command.run("config", "show").expect(0)
    assert "did you mean TRADEWIND_LIMIT_RATE?" in done.stderr
    assert " -  " not in done.stdout
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["dst_endpoint"].split()[1:3] == ["http://127.0.0.1:9000", "AWS_ENDPOINT_URL,"]
    assert str(command.state) in lines["state_dir"]
    command.environment["TRADEWIND_LIMIT_RATE"] = "fast"
    assert "TRADEWIND_LIMIT_RATE" in command.run("cp", "a", "b").expect(2).stderr


def test_doctor_checks_clouds_clock_and_machine(command: Command, s3: S3Place) -> None:
    rows = [json.loads(line) for line in command.run("doctor", "--json").stdout.splitlines()]
    found = {row["name"]: row for row in rows}
    assert {"gateway", "jobs", "settings", "processors", "memory", "open files", "kernel tcp"} <= set(found)
    for cloud in ("s3", "gs", "az"):
        assert found[f"{cloud} credentials"]["mend"]
    assert found["gs credentials"]["absent"]
    assert "not compared" in found["clock"]["what"]
    done = command.run("doctor", "--endpoint", s3.endpoint, "--src-profile", s3.flags("src")[3])
    assert "ok   s3 credentials profile" in done.stdout
    assert "ok   s3 clock       this machine's clock agrees" in done.stdout
    command.environment["AWS_PROFILE"] = "gone"
    done = command.run("doctor").expect(1)
    assert "BAD  s3 credentials" in done.stdout
    assert "WARN" not in done.stderr


def test_doctor_reports_missing_files_that_the_environment_names(command: Command) -> None:
    command.environment["AWS_CONFIG_FILE"] = "/nowhere/config"
    command.environment["TRADEWIND_LIMITRATE"] = "1"
    done = command.run("doctor", "--endpoint", "http://127.0.0.1:1").expect(1)
    lines = done.stdout.splitlines()
    bad = [line for line in lines if line.startswith("BAD")]
    assert any("AWS_CONFIG_FILE names /nowhere/config" in line for line in bad)
    assert any("TRADEWIND_LIMITRATE" in line for line in bad)
    assert any("s3 clock" in line and "cannot connect" in line for line in bad)
    assert all(lines[lines.index(line) + 1].lstrip().startswith("→") for line in bad)


def test_a_whole_bucket_is_deleted_only_with_yes(command: Command, s3: S3Place) -> None:
    s3.put("a/b", b"1")
    flags = s3.flags("src")
    for url in (s3.url, s3.url + "/"):
        done = command.run("rm", "-r", url, *flags).expect(2)
        assert "the whole of" in done.stderr
        assert "-y" in done.stderr
    assert "would delete" in command.run("rm", "-r", s3.url, "--dry-run", *flags).expect(0).stdout
    assert s3.get("a/b") == b"1"
    command.run("rm", "-r", s3.url + "/a", *flags).expect(0)
    s3.put("a/b", b"1")
    command.run("rm", "-r", "-y", s3.url, *flags).expect(0)
    assert command.run("ls", s3.url, *flags).expect(0).stdout == ""


def test_a_long_listing_is_in_the_order_of_the_keys(command: Command, s3: S3Place) -> None:
    command.run("cp", "-r", "mem:?objects=4000&size_bytes=1", f"{s3.url}/many", *s3.flags("dst")).expect(0)
    listed = command.run("ls", "-r", f"{s3.url}/many", *s3.flags("src")).expect(0).stdout.splitlines()
    assert len(listed) == 4000
    assert listed == sorted(listed)
    said = command.run("du", "-h", f"{s3.url}/many", *s3.flags("src")).expect(0).stdout
    assert said.split("\t")[:2] == ["4.00 kB", "4000"]


def test_globs_match_like_gitignore(command: Command, tree: Path) -> None:
    def left(*rules: str) -> list[str]:
        return command.run("ls", "-r", tree, *rules).expect(0).stdout.split()

    assert left("--exclude", "*.txt") == ["a/b/two.tmp"]
    assert left("--exclude", "**.txt") == ["a/b/two.tmp"]
    assert left("--exclude", "/*.txt") == ["a/b/two.tmp", "a/one.txt"]
    assert left("--exclude", "b/") == ["a/one.txt", "three.txt"]
    assert left("--exclude", "*", "--include", "*.tmp") == ["a/b/two.tmp"]
    assert left("--exclude", "{one,three}.txt") == ["a/b/two.tmp", "a/one.txt", "three.txt"]
    assert left("--exclude", "b", "--include", "two.tmp") == ["a/one.txt", "three.txt"]
    ignored = tree.parent / "ignored"
    ignored.write_text("# as in git\n!three.txt\n*.txt  \n!one.txt\nb/\n!two.tmp\n")
    assert left("--exclude-from", str(ignored)) == ["a/one.txt"]


@pytest.mark.parametrize("verb", ["cp -r", "cp", "sync", "mv -r", "rm -r", "ls", "du", "check"])
def test_an_invalid_glob_is_refused_before_anything_is_done(command: Command, tree: Path, verb: str) -> None:
    source = tree / "three.txt" if verb == "cp" else tree
    places = [source, tree.parent / "copy"] if verb.split(maxsplit=1)[0] in ("cp", "sync", "mv", "check") else [source]
    refused = command.run(*verb.split(), *places, "--exclude", "ok", "--exclude", "a[").expect(2)
    assert "error: rule 2 is not a valid glob: a[" in refused.stderr
    assert "hint: put a backslash before a literal" in refused.stderr
    assert (tree / "three.txt").exists()
    assert not (tree.parent / "copy").exists()
    assert command.run("jobs", "list", "--json").expect(0).stdout == ""


def test_names_with_line_ends_stay_on_their_lines(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "a\nb\x1b[2J").write_text("x")
    assert command.run("ls", folder).expect(0).stdout == "a\\nb\\x1b[2J\n"
    (row,) = [json.loads(line) for line in command.run("ls", "--json", folder).expect(0).stdout.splitlines()]
    assert row["key"] == "a\nb\x1b[2J"
    assert len(command.run("cp", "-r", folder, tmp_path / "to", "--dry-run").expect(0).stdout.splitlines()) == 1


def test_on_a_terminal_there_are_live_lines(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(40 * MIB))
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [command.binary, "cp", source, tmp_path / "copy", "--limit-rate", "20MB/s"],
        env={**command.full_environment(), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=child,
    )
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 4096):
            seen += piece
    except OSError:  # EIO: the terminal's other end is closed.
        pass
    os.close(parent)
    assert process.wait() == 0
    text = seen.decode()
    assert "0/1 objects" in text
    assert "\x1b[2A\x1b[J" in text


def test_ctrl_c_twice_quits_at_once_and_the_job_can_be_resumed(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(48 * MIB))
    running = command.start("cp", source, tmp_path / "copy", "--limit-rate", "4MB/s")
    running.wait_for(lambda event: event["event"] == "progress")
    running.signal(signal.SIGINT)
    running.signal(signal.SIGINT)
    assert "jobs resume" in running.finish().expect(130).stderr
    (job,) = command.jobs()
    assert job["state"] == "interrupted"
    command.run("jobs", "resume", job["id"]).expect(0)
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_is_closed_in_order_when_its_session_ends(
    command: Command, tmp_path: Path, number: signal.Signals
) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(48 * MIB))
    running = command.start("cp", source, tmp_path / "copy", "--limit-rate", "4MB/s")
    running.wait_for(lambda event: event["event"] == "progress")
    running.signal(number)
    ended = running.finish().expect(130)
    assert ended.summary["outcome"] == "interrupted"
    assert "jobs resume" in ended.stderr


def test_quiet_deletion_prints_nothing(command: Command, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "old" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "old" / name).write_text(name)
    done = command.run("rm", "-r", "-q", tmp_path / "old").expect(0)
    assert (done.stdout, done.stderr) == ("", "")
    assert not list((tmp_path / "old").glob("*"))
    assert "error" in command.run("rm", "-q", tmp_path / "old" / "a").expect(3).stderr


def test_a_running_job_is_shown_as_running_and_can_be_cancelled_from_elsewhere(
    command: Command, tmp_path: Path
) -> None:
    command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / ("deep" * 40))
    source = tmp_path / "large"
    source.write_bytes(os.urandom(48 * MIB))
    running = command.start("cp", source, tmp_path / "copy", "--limit-rate", "4MB/s")
    running.wait_for(lambda event: event["event"] == "progress")
    (job,) = command.jobs()
    assert job["state"] == "running"
    assert "running" in command.run("jobs", "resume", job["id"]).expect(1).stderr
    command.run("jobs", "cancel", job["id"]).expect(0)
    running.finish().expect(130)
    (job,) = command.jobs()
    assert job["state"] == "cancelled"
    assert "nothing to resume" in command.run("jobs", "resume", job["id"]).expect(2).stderr
    assert os.listdir(tmp_path / "home") == []
    assert sorted(os.listdir(tmp_path)) == ["deep" * 40, "home", "large"]


def topology(tmp_path: Path) -> Path:
    document = {
        "gateways": {"src": {"role": "source"}, "mid": {"role": "relay"}, "dst": {"role": "sink"}},
        "routes": [
            {"nodes": ["src", "dst"], "share": 0.5, "usd_per_gb": 0.01},
            {"nodes": ["src", "mid", "dst"], "share": 0.5, "usd_per_gb": 0.09},
        ],
    }
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document))
    return path


def test_a_topology_is_announced_with_its_cost(command: Command, tree: Path, tmp_path: Path) -> None:
    done = command.run("cp", "-r", tree, tmp_path / "copy", "--topology", topology(tmp_path), "--keep-logs")
    assert "via     3 gateways (1 relaying) on 2 routes; $0.05 per GB" in done.expect(0).stderr
    (job,) = command.jobs()
    folder = command.state / "jobs" / job["id"]
    logs = {path.stem for path in (folder / "logs").iterdir()}
    assert logs == {"dst", "lead", "mid", "src", "tradewind-owner"}
    assert not (folder / "control").exists()


def test_a_plan_is_carried_out_as_a_topology(command: Command, tree: Path, tmp_path: Path) -> None:
    """With a slow direct link and a fast path around it, the plan has a relay, and so has the transfer."""
    rates = {("a:x", "a:z"): 1, ("a:x", "a:y"): 8, ("a:y", "a:z"): 8}
    (tmp_path / "rates.csv").write_text("src,dst,gbps\n" + "".join(f"{u},{v},{g}\n" for (u, v), g in rates.items()))
    (tmp_path / "prices.csv").write_text("src,dst,usd_per_gb\n" + "".join(f"{u},{v},0.02\n" for u, v in rates))
    problem = {
        "throughput_csv": "rates.csv",
        "price_csv": "prices.csv",
        "providers": {"a": {"egress_gbps": 10, "ingress_gbps": 10, "vm_usd_per_hour": 1}},
        "vm_limit": 1,
        "source": "a:x",
        "destination": "a:z",
        "volume_gb": 50,
        "goal": {"min_throughput_gbps": 5},
    }
    (tmp_path / "problem.json").write_text(json.dumps(problem))
    path = tmp_path / "planned.json"
    command.run("plan", "--problem", tmp_path / "problem.json", "--topology", path).expect(0)
    roles = {gateway["region"]: gateway["role"] for gateway in json.loads(path.read_text())["gateways"].values()}
    assert roles == {"a:x": ["source"], "a:y": ["relay"], "a:z": ["sink"]}
    done = command.run("cp", "-r", tree, tmp_path / "copy", "--topology", path).expect(0)
    assert "via     3 gateways (1 relaying)" in done.stderr
    for file in filter(Path.is_file, tree.rglob("*")):
        assert (tmp_path / "copy" / file.relative_to(tree)).read_bytes() == file.read_bytes()


def test_a_cost_ceiling_holds(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(40 * MIB))
    arguments: list[str | Path] = ["cp", source, tmp_path / "copy", "--topology", topology(tmp_path), "--max-cost"]
    done = command.run(*arguments, "0.02USD/GB", "--json").expect(0)
    assert done.summary["progress"]["cost_usd"] <= 0.02 * 40 * MIB / 1e9 + 1e-12
    assert "ceiling" in command.run(*arguments, "0.000001USD").expect(8).stderr


@pytest.fixture
def client(command: Command, monkeypatch: pytest.MonkeyPatch) -> tradewind.Client:
    monkeypatch.setenv("TRADEWIND_GATEWAY", str(find_binary("tradewind-gateway")))
    return tradewind.Client(state_dir=str(command.state))


def test_from_python(client: tradewind.Client, tree: Path, tmp_path: Path) -> None:
    events: list[tradewind.Event] = []
    options = tradewind.Options(recursive=True)
    result = client.copy(str(tree), str(tmp_path / "copy"), options, on_event=events.append)
    assert result.progress.objects_done == 3
    assert "3 objects" in repr(result)
    assert events[-1] == result.summary
    again = client.sync(str(tree), str(tmp_path / "copy"))
    assert (again.progress.objects_done, again.progress.objects_skipped) == (0, 3)
    assert [record.state for record in client.jobs()] == ["done", "done"]


def test_paths_are_places_in_python(client: tradewind.Client, tree: Path, tmp_path: Path) -> None:
    options = tradewind.Options(recursive=True)
    client.copy(tree, tmp_path / "one", options)
    client.copy(tree, [tmp_path / "two", str(tmp_path / "three")], options)
    names = {path.relative_to(tree) for path in tree.rglob("*")}
    for copy in ("one", "two", "three"):
        assert {path.relative_to(tmp_path / copy) for path in (tmp_path / copy).rglob("*")} == names


def test_errors_in_python_have_a_meaning(client: tradewind.Client, tree: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFound) as caught:
        client.copy(str(tree / "none"), str(tmp_path / "copy"))
    assert caught.value.summary is not None
    assert caught.value.job_id is not None
    with pytest.raises(UsageError):
        client.copy(str(tree), str(tmp_path / "copy"))


def test_a_callback_that_raises_drains_and_the_job_can_be_resumed(client: tradewind.Client, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(24 * MIB))

    def refuse(event: tradewind.Event) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        client.copy(
            str(source), str(tmp_path / "copy"), tradewind.Options(limit_bytes_per_s=4_000_000), on_event=refuse
        )
    (record,) = client.jobs()
    assert record.state == "interrupted"
    client.resume(record.id).wait()
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_drain_from_the_loop_over_events(client: tradewind.Client, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(24 * MIB))
    job = client.start(str(source), str(tmp_path / "copy"), tradewind.Options(limit_bytes_per_s=4_000_000))
    try:
        for event in job.events():
            if isinstance(event, tradewind.Progress):
                job.drain()
        with pytest.raises(Interrupted) as caught:
            job.result()
    finally:
        job.close()
    assert caught.value.hint is not None
    assert job.id in caught.value.hint


def test_a_long_state_folder_does_not_break_sockets(command: Command, tree: Path, tmp_path: Path) -> None:
    command.environment["TRADEWIND_STATE_DIR"] = str(tmp_path / ("deep" * 40))
    command.run("cp", "-r", tree, tmp_path / "copy").expect(0)
    (job,) = command.jobs()
    assert job["state"] == "done"


@pytest.mark.slow
def test_the_demo_tells_its_story(command: Command, tmp_path: Path) -> None:
    rng = tmp_path / "tree"
    rng.mkdir()
    for number in range(3):
        (rng / f"large-{number}").write_bytes(os.urandom(60_000_000))
    for number in range(500):
        (rng / f"small-{number}").write_bytes(os.urandom(20_000))
    done = command.run("demo", "--local", "--tree", str(rng), "--size", "300MB").expect(0)
    assert [line[0] for line in done.stderr.splitlines() if line[:1].isdigit()] == ["1", "2", "3", "4", "5"]
    assert "all 503 files are identical" in done.stderr


def test_without_an_emulated_wan_the_demo_runs_locally_and_reports_that(command: Command, tmp_path: Path) -> None:
    command.environment["TRADEWIND_WAN"] = "/nowhere/tradewind-wan"
    done = command.run("demo", "--tree", str(tmp_path), "--size", "1MB")
    first = (
        "No emulated WAN here (TRADEWIND_WAN=/nowhere/tradewind-wan: no such program): the demo runs on this machine"
    )
    assert done.stderr.startswith(first)
    assert done.code == 2 and "no readable files of at least 41.7 kB or at most 1.00 kB" in done.stderr


def test_the_endpoint_of_an_aws_profile_is_used(command: Command, s3: S3Place, tree: Path) -> None:
    config = Path(command.environment["AWS_CONFIG_FILE"])
    profile = s3.flags("src")[3]
    config.write_text(f"[profile {profile}]\nregion = us-east-1\nservices = here\n[services here]\ns3 =\n")
    config.write_text(config.read_text() + f"  endpoint_url = {s3.endpoint}\n")
    command.run("cp", tree / "three.txt", f"{s3.url}/three", "--dst-profile", profile).expect(0)
    assert s3.get("three") == b"3" * 300_000
    assert "three" in command.run("ls", s3.url, "--src-profile", profile).expect(0).stdout
    shown = command.run("config", "show", "--json").expect(0).stdout
    assert s3.endpoint not in shown
    command.environment["TRADEWIND_SRC_PROFILE"] = profile
    assert s3.endpoint in command.run("config", "show").expect(0).stdout
