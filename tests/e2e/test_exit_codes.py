"""Every command's mistakes and missing things, with their exit codes: the table of `tradewind --help`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from testbed.drive import Command
from tradewind.cli import VERBS

#: Invalid arguments, settings and files of the user: nothing was started.
USAGE = """
nosuch
--nosuch
cp
cp d/a
cp d x
cp d/a b x
cp d/a x --nosuch
cp d/a x --chunk-size 1
cp d/a x --chunk-size banana
cp d/a x --concurrency 0
cp -r d x --files-from nosuch
cp -r d x --filter-from nosuch
cp -r d x --topology nosuch.json
cp -r d x --include ''
cp d/a nosuch://b/x
cp d/a x --config nosuch.toml
cp d/a x --profile nosuch
cp d/a x --via nosuch
cp s3://b/x y --src-profile nosuch
cp - x/
cp - x -n
cp d/a d/a
sync
sync d/a x
sync d x -n
sync d x --flatten
sync d x --ignore-existing --compare size
sync d x --max-delete banana
mv
mv d x
ls
ls d/a/
ls nosuch://b
du
du d/a/
du d --depth banana
stat
stat d/a/
stat d/a d/b
presign d/a
presign s3://b
presign s3://b/k --expires banana
rm
rm -r d/a
rm d --include x
rm d/a --files-from nosuch
rm d e --files-from -
rm -r d --files-from -
rm --versions d/a d/b
cat
cat d/a --range banana
mb d
mb s3://
rb d -y
check
check d
check d/a d
check d d --read --compare size
plan
plan nosuch nosuch
plan aws:nowhere aws:us-east-1
plan aws:us-east-1 aws:us-west-2 --volume banana
plan --problem nosuch
accelerate
accelerate nosuch
accelerate plan
accelerate plan --flows nosuch
accelerate run
accelerate up
accelerate up nosuch
market
market nosuch
market margins --extra-nodes banana
catalog
catalog nosuch
catalog show nosuch
catalog show aws:nowhere
catalog import nosuch.csv
jobs
jobs nosuch
jobs show
jobs list --state nosuch
jobs list nosuch
jobs prune
jobs prune --older banana
measure
measure --sky nosuch.json
fleet
fleet nosuch
fleet explain
fleet down ../x
fleet up
fleet up aws:us-east-1
fleet sweep nosuch
serve
serve --nosuch
console --nosuch
send
send d/a nosuch
receive
receipt
receipt verify
receipt verify nosuch --key nosuch
init nosuch
doctor nosuch://x
sky
sky up nosuch.json
sky down nosuch.json
sky status nosuch.json
config
config nosuch
demo nosuch
completion
completion nosuch
help nosuch
"""

#: Commands that name something that does not exist: an object, a directory, a job, a fleet.
NOT_FOUND = """
cp nosuch x
cp -r nosuch x
sync nosuch x
mv nosuch x
mv -r nosuch x
ls nosuch
ls 'nosuch*'
du nosuch
stat nosuch
stat d
rm nosuch
rm d
rm -r nosuch
rm nosuch nosuch2
rm 'nosuch*'
rm --files-from empty
cat nosuch
cat d
check nosuch d
accelerate status nosuch
accelerate down nosuch
accelerate down
accelerate replan nosuch
accelerate run -- true
jobs show nosuch
jobs attach nosuch
jobs wait nosuch
jobs pause nosuch
jobs resume nosuch
jobs cancel nosuch
jobs receipt nosuch
fleet explain nosuch
fleet down nosuch
"""

#: Some of what was named exists.
SOME_FAILED = """
rm c nosuch
"""

#: Run each command line in a fork of one interpreter, so that it is imported once.
DRIVER = """
import json, os, shlex, sys, tempfile
from tradewind.cli.main import main
for line in sys.stdin.read().splitlines():
    with tempfile.TemporaryFile() as errors:
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            code = main(shlex.split(line))
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        print(json.dumps([line, code, errors.read().decode()]), flush=True)
"""

TABLE = {2: USAGE, 3: NOT_FOUND, 4: SOME_FAILED}


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def test_the_table_has_every_command() -> None:
    without_arguments = {"doctor", "init", "demo", "console"}
    verbs = {line.split()[0] for line in lines(USAGE)}
    assert set(VERBS) - without_arguments <= verbs


def test_mistakes_and_missing_things_have_the_codes_of_the_table(command: Command, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "d").mkdir(parents=True)
    for name in ("d/a", "d/b", "b", "c", "empty"):
        (here / name).write_text("" if name == "empty" else name)
    expected = {line: code for code, text in TABLE.items() for line in lines(text)}
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input="\n".join(expected),
        env=command.full_environment(),
        cwd=here,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    ended = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line for line, _, _ in ended] == list(expected)
    wrong = [(line, code, said) for line, code, said in ended if code != expected[line]]
    assert not wrong, "\n".join(f"{line}: {code}, not {expected[line]}\n{said}" for line, code, said in wrong)
    for line, _, said in ended:
        errors = re.findall(r"^error: (.*)$", said, re.MULTILINE)
        assert errors and "internal" not in said and "Traceback" not in said, (line, said)
        assert not errors[-1].endswith("."), (line, errors[-1])
