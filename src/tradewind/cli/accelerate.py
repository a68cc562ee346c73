"""`tradewind accelerate`: its actions, each in a file `accelerate_ACTION.py`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from tradewind.cli import (
    accelerate_advise,
    accelerate_down,
    accelerate_plan,
    accelerate_replan,
    accelerate_status,
    accelerate_up,
)
from tradewind.errors import UsageError

HELP = """\
Decide which TCP flows go through split proxies in the cloud, and through which, so that the sum of their completion
times is as small as possible within a budget, and run these proxies.

`plan` reads a flows file, whose prices and round trips come from the catalog, or a problem file, which has all figures
itself. `advise` measures from this machine where it can. For each flow it reports what limits it now, then the gain
from larger windows or bbr at the ends, which costs nothing, and only then what proxies add and cost. Neither of them
starts anything.

`up` starts the proxies in an emulated WAN, prints the addresses of this machine to which applications connect, and
watches until `down`, Ctrl-C, `--for` or `--max-cost` ends it. `status` shows rates, health and cost, `replan` places
the flows again, and `down` lets open connections end first. Without an ID, `replan` and `down` take the only
acceleration that runs."""
USAGE = (
    "[OPTION]… plan --flows FILE | plan --problem FILE | advise --flows FILE | advise HOST:PORT|URL | "
    "up --flows FILE --sky FILE | status [ID]… | replan [ID] | down [ID]"
)
EXAMPLES = """\
  tradewind accelerate plan --flows flows.toml --write-problem problem.json
  tradewind accelerate plan --problem problem.json
  tradewind accelerate plan --problem problem.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem problem.json --explain
  tradewind accelerate plan --problem problem.json --frontier --json
  tradewind accelerate advise --flows flows.toml
  tradewind accelerate advise https://files.example.org/large.bin
  tradewind accelerate up --flows flows.toml --sky sky.json --max-cost 5USD
  tradewind accelerate status --json
  tradewind accelerate down --drain 1min"""

#: The file of each action. It has `add_arguments`, `run`, `OPTIONS` (the names of the options that it takes) and
#: `ARGUMENTS` (what its further arguments are; None if it takes none).
ACTIONS: dict[str, Any] = {
    "plan": accelerate_plan,
    "advise": accelerate_advise,
    "up": accelerate_up,
    "status": accelerate_status,
    "replan": accelerate_replan,
    "down": accelerate_down,
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, its arguments, and the options of all actions. An option that is not given is None or false."""
    names = list(ACTIONS)
    parser.add_argument("action", metavar="ACTION", choices=names, help=_either(names))
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs="*", help="advise: HOST:PORT, or the URL of a file; others: ID"
    )
    parser.add_argument("--flows", metavar="FILE", help="flows file, as TOML: flows, regions of proxies, and a budget")
    for module in ACTIONS.values():
        module.add_arguments(parser)


def run(args: Namespace) -> int:
    """Run the action. Raises UsageError for options and arguments of another one."""
    module = ACTIONS[args.action]
    for option in sorted({option for of in ACTIONS.values() for option in of.OPTIONS} - set(module.OPTIONS)):
        if getattr(args, option):
            names = [name for name, other in ACTIONS.items() if option in other.OPTIONS]
            raise UsageError(f"{_flag(option)} is only for accelerate {_either(names)}", hint="leave it out")
    if args.arguments and module.ARGUMENTS is None:
        raise UsageError(
            f"accelerate {args.action} takes no arguments", hint="`tradewind accelerate --help` shows the usage"
        )
    code: int = module.run(args)
    return code


def _flag(option: str) -> str:
    return f"--{option.removesuffix('_time' if option == 'for_time' else '').replace('_', '-')}"


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
