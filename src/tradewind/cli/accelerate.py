"""`tradewind accelerate`: its actions, each in a file `accelerate_ACTION.py`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from tradewind.cli import (
    accelerate_advise,
    accelerate_down,
    accelerate_generate,
    accelerate_plan,
    accelerate_replan,
    accelerate_run,
    accelerate_status,
    accelerate_up,
)
from tradewind.errors import UsageError

HELP = """\
Find out what limits TCP flows, place split proxies for them within a budget, and run these proxies.

`plan` decides which flows go through which proxies, and minimises the sum of their completion times. It reads a flows
file, and takes prices and round trips from the catalog; or it reads a problem file, which has all figures. `advise`
measures from this machine where it can. For each flow it reports what limits the flow now, then the gain from larger
windows or bbr at the ends, which costs nothing, and only then what proxies add and cost. `generate` prints a problem
file of a typical use case, with random hosts near random regions, and can write its flows file. None of these three
starts a proxy.

`up` starts the proxies at the configured hosts, clusters and clouds, or in an emulated WAN (`--sky`). It prints the
addresses to which applications connect, on this machine or on another host of a flow, and watches the proxies until
`down`, Ctrl-C, `--for` or `--max-cost` ends them. `status` shows rates, health and cost, `replan` places the flows
again, and `down` waits for open connections before it ends the proxies. Without an ID, `replan` and `down` use the only
running acceleration.

`run` runs a command whose TCP connections go through a running proxy. Its exit code is that of the command."""
USAGE = """[OPTION]… plan FLOWS | plan --problem FILE
       tradewind accelerate [OPTION]… advise --flows FILE | advise HOST:PORT|URL
       tradewind accelerate [OPTION]… generate CASE
       tradewind accelerate [OPTION]… up FLOWS [--sky FILE] | up --resume ID
       tradewind accelerate [OPTION]… status [ID]… | replan [ID] | down [ID]
       tradewind accelerate [OPTION]… run [--through URL [--to HOST[:PORT]]…] -- COMMAND [ARGUMENT]…"""
EXAMPLES = """\
  tradewind accelerate plan --flows flows.toml --write-problem problem.json
  tradewind accelerate plan --problem problem.json
  tradewind accelerate plan --problem problem.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem problem.json --explain
  tradewind accelerate plan --problem problem.json --frontier --json
  tradewind accelerate plan --problem problem.json --plot frontier.svg
  tradewind accelerate advise --flows flows.toml
  tradewind accelerate advise https://files.example.org/large.bin
  tradewind accelerate generate many-to-many --count 30 --seed 7 | tradewind accelerate plan --problem -
  tradewind accelerate generate one-to-many --count 8 --write-flows flows.toml
  tradewind accelerate up flows.toml --max-cost 5USD
  tradewind accelerate up flows.toml --sky sky.json
  tradewind accelerate status --json
  tradewind accelerate down --drain 1min
  tradewind accelerate run --through socks5h://ann@proxy:1080 --token-file token --to data.example:443 -- curl -O URL"""
#: Words after `--` are a command's.
HAS_COMMAND = True

#: The file of each action. It has `add_arguments`, `run`, `OPTIONS` (the names of the options that it takes) and
#: `ARGUMENTS` (what its further arguments are; None if it takes none).
ACTIONS: dict[str, Any] = {
    "plan": accelerate_plan,
    "advise": accelerate_advise,
    "generate": accelerate_generate,
    "up": accelerate_up,
    "status": accelerate_status,
    "replan": accelerate_replan,
    "down": accelerate_down,
    "run": accelerate_run,
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, its arguments, and the options of all actions. An option that is not given is None or false."""
    names = list(ACTIONS)
    parser.add_argument("action", metavar="ACTION", choices=names, help=_either(names))
    arguments = "; ".join(f"{name}: {module.ARGUMENTS}" for name, module in ACTIONS.items() if module.ARGUMENTS)
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help=arguments)
    parser.add_argument(
        "--flows",
        metavar="FILE",
        help="flows file, as TOML: flows, regions of proxies, and a budget; plan and up take it as argument, too",
    )
    for module in ACTIONS.values():
        module.add_arguments(parser)


def run(args: Namespace) -> int:
    """Run the action. Raises UsageError for options and arguments of another one."""
    module = ACTIONS[args.action]
    for option in sorted({option for of in ACTIONS.values() for option in of.OPTIONS} - set(module.OPTIONS)):
        if getattr(args, option) not in (None, False):
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
