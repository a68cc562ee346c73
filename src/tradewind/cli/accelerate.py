"""`tradewind accelerate`: its actions, each in a file `accelerate_ACTION.py`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli import accelerate_plan
from tradewind.errors import UsageError

HELP = """\
Decide which TCP flows go through split proxies in the cloud, and through which, so that the sum of their completion
times is as small as possible within a budget. The problem file has regions, prices, flows and the budget. Nothing is
started."""
USAGE = "[OPTION]… plan --problem FILE"
EXAMPLES = """\
  tradewind accelerate plan --problem flows.json
  tradewind accelerate plan --problem flows.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem flows.json --explain
  tradewind accelerate plan --problem flows.json --frontier --json"""

#: The file of each action. It has `add_arguments`, `run`, `OPTIONS` (the names of the options that it takes) and
#: `WORDS` (what its further arguments are; None if it takes none).
ACTIONS = {"plan": accelerate_plan}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, its arguments, and the options of all actions. An option that is not given is None or false."""
    names = list(ACTIONS)
    parser.add_argument("action", metavar="ACTION", choices=names, help=_either(names))
    parser.add_argument("words", metavar="WORD", nargs="*", help="arguments of the action")
    for module in ACTIONS.values():
        module.add_arguments(parser)


def run(args: Namespace) -> int:
    """Run the action. Raises UsageError for options and arguments of another one."""
    module = ACTIONS[args.action]
    for option in sorted({option for of in ACTIONS.values() for option in of.OPTIONS} - set(module.OPTIONS)):
        if getattr(args, option):
            names = [name for name, other in ACTIONS.items() if option in other.OPTIONS]
            raise UsageError(
                f"--{option.replace('_', '-')} is only for accelerate {_either(names)}", hint="leave it out"
            )
    if args.words and module.WORDS is None:
        raise UsageError(
            f"accelerate {args.action} takes no arguments", hint="`tradewind accelerate --help` shows the usage"
        )
    return module.run(args)


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
