"""`tradewind completion bash|zsh|fish`: scripts that are generated from the parsers."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterable

USAGE = "bash | zsh | fish"
HELP = "Print the completion script of a shell."
EXAMPLES = """\
  source <(tradewind completion bash)
  tradewind completion zsh > "${fpath[1]}/_tradewind"
  tradewind completion fish > ~/.config/fish/completions/tradewind.fish"""

#: Shell command that prints the ids of all jobs.
JOB_IDS = "tradewind jobs list --all 2>/dev/null | tail -n +2 | cut -d' ' -f1"
#: Positional arguments that zsh completes: files, unless a verb takes others.
FILES = "*:file:_files"
ZSH_REST = {"jobs": "2:job:_tradewind_jobs"}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")


def run(args: Namespace) -> int:
    """Print the script."""
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def _verbs() -> dict[str, tuple[str, list[Action]]]:
    """Return the description and the arguments of each verb."""
    from importlib import import_module

    from tradewind.cli import VERBS
    from tradewind.cli.arguments import build_parser

    return {
        verb: (what, build_parser(verb, import_module(f"tradewind.cli.{verb}"))._actions)
        for verb, what in VERBS.items()
    }


def _options(actions: Iterable[Action]) -> list[str]:
    return [option for action in actions for option in action.option_strings if option.startswith("--")]


def _choices(actions: Iterable[Action]) -> list[str]:
    return [str(choice) for action in actions if not action.option_strings for choice in action.choices or ()]


def _bash() -> str:
    verbs = _verbs()
    cases = "\n".join(
        f"    {verb}) words={' '.join(_options(actions) + _choices(actions))!r};;"
        for verb, (_, actions) in verbs.items()
    )
    return f"""\
_tradewind() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {" ".join(verbs)!r} -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  if [ "${{COMP_WORDS[1]}}" = jobs ] && [ "$COMP_CWORD" -gt 2 ] && [[ $word != -* ]]; then
    words=$({JOB_IDS})
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _tradewind tradewind
"""


def _zsh() -> str:
    verbs = _verbs()
    lines = "\n".join(f"    '{verb}:{_quoted(what)}'" for verb, (what, _) in verbs.items())
    cases = "\n".join(
        f"    {verb}) _arguments {_zsh_arguments(actions)} '{ZSH_REST.get(verb, FILES)}';;"
        for verb, (_, actions) in verbs.items()
    )
    return f"""\
#compdef tradewind
_tradewind_jobs() {{
  local -a ids=("${{(@f)$({JOB_IDS})}}")
  _describe job ids
}}
_tradewind() {{
  local -a verbs=(
{lines}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=${{words[2]}}
  shift words; (( CURRENT-- ))
  case $verb in
{cases}
  esac
}}
_tradewind "$@"
"""


def _zsh_arguments(actions: Iterable[Action]) -> str:
    parts = []
    for action in actions:
        for option in action.option_strings:
            if option.startswith("--"):
                value = ":value:_files" if action.nargs != 0 else ""
                parts.append(f"'{option}[{_quoted(_help_of(action))}]{value}'")
    choices = _choices(actions)
    if choices:
        parts.append(f"'1:action:({' '.join(choices)})'")
    return " ".join(parts)


def _fish() -> str:
    lines = []
    for verb, (what, actions) in _verbs().items():
        lines.append(f"complete -c tradewind -n __fish_use_subcommand -a {verb} -d '{_quoted(what)}'")
        for action in actions:
            for option in action.option_strings:
                if option.startswith("--"):
                    value = " -r" if action.nargs != 0 else ""
                    lines.append(
                        f"complete -c tradewind -n '__fish_seen_subcommand_from {verb}' "
                        f"-l {option[2:]}{value} -d '{_quoted(_help_of(action))}'"
                    )
        lines += [
            f"complete -c tradewind -n '__fish_seen_subcommand_from {verb}' -a {choice}" for choice in _choices(actions)
        ]
    lines.append(f"complete -c tradewind -n '__fish_seen_subcommand_from jobs' -a \"({JOB_IDS})\"")
    return "\n".join(lines) + "\n"


def _help_of(action: Action) -> str:
    return (action.help or "").replace("%%", "%")


def _quoted(text: str) -> str:
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", " ").replace("\n", " ")
