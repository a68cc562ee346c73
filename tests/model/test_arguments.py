"""Errors name arguments of Python for callers in Python, and options for the command line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tradewind
from testbed.messages import messages
from tradewind.cli.arguments import build_parser
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.errors import UsageError, name_options
from tradewind.model.arguments import ARGUMENTS, in_python
from tradewind.model.job import AttributeRules, ObjectFilter, ObjectLock, Preserve
from tradewind.model.store import Access

#: Options of the command itself: how it talks, and which files it reads.
OF_THE_COMMAND = {
    *("-h", "--help", "-q", "--quiet", "-v", "--verbose", "--json", "--config", "--profile"),
    *("--detach", "--explain", "--plot"),
}
#: Verbs whose work the Python interface does, too.
VERBS = ("cp", "sync", "mv", "plan")


@pytest.fixture
def caller_in_python() -> Iterator[None]:
    name_options(False)
    yield
    name_options()


def options_of(verb: str) -> set[str]:
    actions = build_parser(verb, import_module(f"tradewind.cli.{verb}"))._actions
    return {option for action in actions for option in action.option_strings}


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_has_an_argument(verb: str) -> None:
    assert options_of(verb) - OF_THE_COMMAND <= ARGUMENTS.keys(), "add the argument to model/arguments.py"


def test_no_option_of_the_table_was_removed() -> None:
    known = {option for verb in (*VERBS, "ls", "check") for option in options_of(verb)}
    one_side = {option for option in ARGUMENTS if option.startswith("--") and f"--src-{option[2:]}" in known}
    assert ARGUMENTS.keys() - one_side <= known


def test_each_argument_exists() -> None:
    owners = {
        each.__name__: each for each in (Options, Access, ObjectFilter, ObjectLock, AttributeRules, Preserve, Request)
    }
    planned = set(Engine.plan.__annotations__) | set(Request.__dataclass_fields__)
    for argument in ARGUMENTS.values():
        for owner, names in re.findall(r"([A-Z]\w+)\(([^()]*)", argument.text):
            if owner in owners:
                fields = {field.name for field in dataclasses.fields(owners[owner])}
                assert set(re.findall(r"(\w+)=", names)) <= fields, argument.text
        if re.match(r"[a-z_]+=", argument.text):
            assert argument.text.partition("=")[0] in {*planned, "keep_logs"}, argument.text


#: Work that no public name of Python does, so that only the programs print its messages.
OF_THE_PROGRAMS = re.compile(
    r"src/tradewind/(cli|service|acceleration)/|crates/(wan|split)/|crates/gateway/src/(task|control|serve|join_again|identity|schema)\b"
    r"|src/tradewind/(fleet/(home|processes|aws/instances|azure/ending|gcp/instances|kubernetes/policy)|sky/change)"
    r"|src/tradewind/engine/(tasks|deletions|versions|buckets|diagnosis|cloud_setup|setup|sample_files|warm|signed_receipt)\.py"
    r"|src/tradewind/engine/(service_client|accelerations|acceleration_up|advising|use_cases|user_catalog|guest_host|guest_networks)\.py"
    r"|src/tradewind/(catalog|measure|model/arguments)"
)
#: Options of other programs, and of commands that have no counterpart in Python.
OF_OTHERS = re.compile(
    r"(ssh|kubectl|curl|sysctl|ulimit|az|sh|python|umask|fuser)\b.* -|-(tests|rules)\b|\bserve`|--force deletes|--join,"
    r"|--state that of `tradewind serve`|--json (has|writes)|to --through|CA must"
)


def test_no_message_for_python_names_an_option() -> None:
    option = re.compile(r"(?<![\w/.-])--?[a-z][a-z-]*(?![\w-])")
    left = []
    for message in messages():
        if OF_THE_PROGRAMS.search(message.path) or OF_OTHERS.search(message.text):
            continue
        words = re.sub(r"`[^`]*`|\{[^}]*\}", "", in_python(message.text))
        if option.search(words):
            left.append(f"{message.path}:{message.line}: {words}")
    assert not left, "\n".join(left)


def test_a_directory_is_refused_with_the_argument_that_copies_it(tmp_path: Path, caller_in_python: None) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError) as refused:
        tradewind.copy(tmp_path / "data", tmp_path / "copy")
    assert refused.value.hint == "add Options(recursive=True) to include what is in it"


def test_errors_of_the_engine_name_arguments_too(caller_in_python: None) -> None:
    with pytest.raises(UsageError) as refused:
        Request("s3://a/b", "s3://c/d", via="local", replan=True)
    assert str(refused.value) == 'Request(replan=True) needs Request(via="fleet") or Request(via="sky")'


def test_the_command_line_names_options() -> None:
    with pytest.raises(UsageError, match=r"^--replan needs --via fleet or sky$"):
        Request("s3://a/b", "s3://c/d", via="local", replan=True)


def test_values_become_values() -> None:
    for text, expected in (
        ("--compare size does not", 'Options(compare="size") does not'),
        ("--tags keep: no tags", 'Options(source_tags="keep"): no tags'),
        ("--preserve mode,owner needs root", "Preserve(mode=True, owner=True) needs root"),
        ("give --topology FILE", "give topology=…"),
        ("set e.g. --src-region aws:us-east-1; or", 'set e.g. Access(region="aws:us-east-1"); or'),
        ("name several with --to DST", "name several with a list"),
    ):
        assert in_python(text) == expected


def test_commands_between_backticks_stay() -> None:
    for text in ("delete with `tradewind rm -r`", "`tradewind cp SRC DST --dry-run` shows the plan"):
        assert in_python(text) == text


def test_jobs_are_resumed_by_a_method() -> None:
    hint = "check the network, then run `tradewind jobs resume 20250131-120000-k3f9t`"
    assert in_python(hint) == "check the network, then run Client.resume('20250131-120000-k3f9t')"
    assert in_python("resume with: tradewind jobs resume 20250131-120000-k3f9t").endswith(
        ".resume('20250131-120000-k3f9t')"
    )


def test_names_of_files_are_left_alone() -> None:
    for text in ("/data/-r/x is a directory", "a--delete", "no such file: x-r", "s3://b/--exclude-this"):
        assert in_python(text) == text
