"""Commands and options of other tools are refused with a hint that names ours."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tradewind.cli import VERBS as OUR_VERBS
from tradewind.cli.arguments import build_parser
from tradewind.cli.main import main
from tradewind.cli.other_tools import ACTIONS, NEEDLESS, OPTIONS, VERBS, option_hint

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "coming-from.md").read_text(encoding="utf-8")


def options_of(verb: str) -> set[str]:
    parser = build_parser(verb, import_module(f"tradewind.cli.{verb}"))
    return set(parser._option_string_actions)


def test_each_hint_names_an_option_or_a_command_that_exists() -> None:
    known = set().union(*(options_of(verb) for verb in ("cp", "sync", "rm", "ls", "presign", "check")))
    assert all(option_hint(option, known) for option in OPTIONS)
    assert not set(NEEDLESS) & set(OPTIONS)
    assert not (set(NEEDLESS) | set(OPTIONS)) & options_of("cp")
    assert {ours.split()[0] for ours in VERBS.values() if ours} <= {*OUR_VERBS, "--version"}
    assert not (set(VERBS) | set(ACTIONS)) & set(OUR_VERBS)
    assert not set(VERBS) & set(ACTIONS)
    for verb, action in (ours.split() for commands in ACTIONS.values() for ours in commands):
        actions = next(
            each
            for each in build_parser(verb, import_module(f"tradewind.cli.{verb}"))._actions
            if each.dest == "action"
        )
        assert action in (actions.choices or ())


def test_each_option_of_the_guide_is_ours_or_has_a_hint() -> None:
    """Otherwise the error would guess at an option that is merely spelled alike."""
    options = GUIDE.partition("## Options")[2].partition("## Deliberate")[0]
    rows = (line.split(" | ")[0] for line in options.splitlines() if line.startswith("| `"))
    named = {option for row in rows for option in re.findall(r"--[a-z0-9][a-z0-9-]+", row)}
    ours = set().union(*(options_of(verb) for verb in ("cp", "sync", "rm")))
    assert len(named) > 100
    assert [option for option in sorted(named - ours) if option_hint(option, ours) is None] == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("cat --version-id x s3://b/k", "leave it out: only the latest version of an object is read"),
        ("sync a b --worker host", "write --via fleet"),
        ("cp a b --content-encoding gzip", "only the attributes of --content-type, --cache-control and --metadata"),
        ("website s3://b", "the settings of a bucket are not changed: use a tool of its cloud"),
        ("s3 ls", "leave out s3: `tradewind ls s3://BUCKET`"),
        ("copyto a b", "write `tradewind cp`"),
        ("delete s3://b/x", "write `tradewind rm`"),
        ("version", "write `tradewind --version`"),
        ("resume 20260102-030405-abcdefgh", "write `tradewind jobs resume`\n"),
        ("sweep", "write `tradewind fleet sweep`\n"),
        ("status", "write `tradewind jobs list` or `tradewind accelerate status`\n"),
        ("purge s3://b/d", "write `tradewind rm -r`"),
        ("link s3://b/x", "write `tradewind presign`"),
        ("md5sum s3://b/x", "write `tradewind stat`"),
        ("mount s3://b dir", "stores cannot be mounted"),
        ("select s3://b/x", "to query an object, use a tool of its cloud"),
        ("touch s3://b/x", "`tradewind cp - URL < /dev/null` writes an empty object"),
        ("cp a b --dryrun", "write --dry-run"),
        ("cp a b --checksum", "it is an option of `tradewind sync`: --compare checksum"),
        ("mv a b --delete", "it is an option of `tradewind sync`: --delete\n"),
        ("cp a b --acl public-read", "access lists are not set or copied: use the policy of the bucket"),
        ("cp a b --sse-c AES256", "objects are encrypted with the default key of the bucket; a key cannot be chosen"),
        (
            "cp a s3://b/a --retention-mode governance",
            "write --object-lock-mode MODE",
        ),
        ("cp a b --endpoint-url http://h", "write --src-endpoint or --dst-endpoint"),
        ("ls s3://b --endpoint-url http://h", "write --endpoint"),
        ("cp a b --no-sign-request", "write --src-no-sign or --dst-no-sign"),
        ("sync a b --size-only", "write --compare size"),
        ("cp -r a b --transfers 16", "write --concurrency N"),
        (
            "cp -r a b -P",
            "progress is shown on a terminal only; -q prints only errors; --preserve mode,owner,time keeps these",
        ),
        ("cp -r a b -L log", "write --follow-symlinks to follow links, or --report FILE for a line about each object"),
        ("sync a b --exact-timestamps", "--compare time copies again where the copy is older than its source"),
        ("run commands.txt", "to run a file of commands, use a shell"),
        ("bench", "`tradewind demo` races two paths"),
        ("rm -rf s3://b/d", "leave it out: rm asks only on a terminal, and -y answers yes; --allow-empty accepts"),
        ("cp --recursive=true a b", "write --recursive alone, or leave it out"),
        ("rm --all-versions s3://b/d", "write --versions"),
        ("rm -ra gs://b/d", "write --versions"),
        ("sync -u a b", "`tradewind sync` copies what differs, and replaces newer objects, too; --ignore-existing"),
        ("rm -I", "write --files-from -"),
        ("ls --summarize s3://b", "`tradewind du URL` counts objects and sums sizes"),
        ("sync -n a b", "write --dry-run to copy nothing, or --ignore-existing to replace nothing"),
        ("ls -la .", "leave it out: names that begin with a dot are listed, too"),
        ("ls -1 s3://b", "leave it out: each name has a line"),
        ("du -sh s3://b", "leave it out: du prints one sum for each URL, unless --depth divides it"),
        ("cp -f a b", "leave it out: what the destination has is replaced, unless --ignore-existing is given"),
        ("cp -rp a b", "write --preserve mode,owner,time"),
        (
            "cp -r a minio:bucket/a",
            "write s3://bucket/a with a profile and an endpoint, or ./minio:bucket/a for a path",
        ),
        ("mv minio:bucket/a a", "write s3://bucket/a with a profile and an endpoint, or ./minio:bucket/a for a path"),
        ("cp a s3://b/a --rate-limit 1MB/s", "write --limit-rate RATE\n"),
        ("cp a s3://b/a --bwlimit 1M", "write --limit-rate RATE\n"),
        (
            "cp a s3://b/a --aws-profile lab",
            "a profile of the cloud's own configuration is --src-profile NAME or --dst-",
        ),
        ("cp a s3://b/a --access-key AKIA", "credentials are never arguments"),
        ("cp -R a s3://b/a", "write -r\n"),
        ("sync a s3://b/a --delete-before", "write --delete\n"),
        ("sync -d a s3://b/a", "write --delete\n"),
        ("sync a s3://b/a --retries 5", "leave it out: failed requests are repeated"),
        ("sync -avz a s3://b/a", "leave it out: sync copies a whole tree; --preserve mode,owner,time keeps"),
        ("cp -avz a s3://b/a", "-r copies a tree; --preserve mode,owner,time keeps"),
        ("cp -recursive a s3://b/a", "write --recursive\n"),
        ("cp -exclude x a s3://b/a", "did you mean --exclude?"),
        ("cp a s3://b/a --timeout 5", "leave it out: failed requests are repeated"),
        ("cp a s3://b/a --no-verify-ssl", "name the CA of the server with a --ca-bundle option"),
        ("cp a s3://b/a --version", "write `tradewind --version`"),
        ("ls s3://b --output json", "write --json\n"),
        ("ls s3://b --all-versions", "leave it out: only the latest version of an object is read"),
        ("ls s3://b -e", "write --json: it has the ETag and the whole key"),
        ("du -H s3://b", "write --human\n"),
        ("check a b --download", "write --read\n"),
        ("cp a s3://b/a --regoin eu-west-1", "did you mean --src-region or --dst-region?"),
        ("cp a s3://b/a --exlude x", "did you mean --exclude?"),
        ("cp a s3://b/a --frobnicate", "`tradewind cp --help` shows the usage"),
        ("cp - minio:bucket/a", "write s3://bucket/a with a profile and an endpoint, or ./minio:bucket/a for a path"),
        ("stat s3://b", "name one object in it; cp, mv and rm take everything in it with -r"),
    ],
)
def test_words_of_other_tools_get_a_hint(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert f"hint: {hint}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lsd", "s3:"], "write `tradewind ls`"),
        (["ls", "s3:"], "write s3://, or ./s3: for a path"),
        (["cp", "a", "s3://b/c", "--jobs", "4"], "write --concurrency N"),
        (["cp", "a", "s3://b/c", "-j", "4"], "write --concurrency N"),
        (["du", "-sh", "s3://b"], "leave it out: du prints one sum"),
        (["cp", "file://d/a", "y"], "the form is file:///absolute/path"),
        (["cp", "file:d/a", "y"], "write d/a, or ./file:d/a for a path"),
        (
            ["cp", "-r", "d", "ann@host:/data"],
            "files of another host need a mount, or a command there; write ./ann@host:/",
        ),
    ],
)
def test_habits_get_a_hint(capsys: pytest.CaptureFixture[str], words: list[str], hint: str) -> None:
    assert main(words) == 2
    assert hint in capsys.readouterr().err


def test_a_letter_of_a_group_is_named_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["du", "-sh", "s3://b"]) == 2
    assert "unknown option -s\n" in capsys.readouterr().err
