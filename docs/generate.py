"""Generate the reference pages from the code: `make docs`. With --check, fail if a page is out of date."""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from pathlib import Path

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Made by docs/generate.py from the code; `make docs` writes it anew. -->\n"


def cli_page() -> str:
    """Return every verb's help, formatted for 100 columns."""
    from tradewind.cli import EXIT_CODES, VERBS
    from tradewind.cli.arguments import build_parser

    parts = [
        NOTE,
        "# Commands\n",
        *(f"- [`tradewind {verb}`](#tradewind-{verb}): {what}" for verb, what in VERBS.items()),
    ]
    parts.append(f"\n```\n{EXIT_CODES}\n```\n")
    for verb in VERBS:
        text = build_parser(verb, import_module(f"tradewind.cli.{verb}")).format_help()
        text = text.replace(EXIT_CODES, "").rstrip()
        parts.append(f"## tradewind {verb}\n\n```\n{text}\n```\n")
    return "\n".join(parts)


def settings_page() -> str:
    """Return the table of settings."""
    from tradewind.cli.config import SETTINGS

    rows = [
        f"| `{setting.name}` | `{setting.variable}` | {setting.default or '-'} | {setting.help.replace('|', '/')} |"
        for setting in SETTINGS.values()
    ]
    return "\n".join(
        [
            NOTE,
            "# Settings\n",
            "A flag overrides the environment, which overrides the profile (`--profile NAME` or `TRADEWIND_PROFILE`),",
            "which overrides `$XDG_CONFIG_HOME/tradewind/config.toml` (or `--config FILE`, `TRADEWIND_CONFIG`).",
            "`tradewind config show` prints each value and its origin. Values are written as on the command line.\n",
            '```toml\nlimit_rate = "200MB/s"\n\n[profiles.lab]\ndst_endpoint = "https://s3.lab.example:9000"\n```\n',
            "| setting | environment | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "The tables `[[ssh.hosts]]` and `[fleet]`, and one for each cloud, say where gateways may run:",
            "[run gateways where the data is](../guides/fleet.md).",
            "",
        ]
    )


def python_page() -> str:
    """Return the public names with their signatures and docstrings."""
    import tradewind

    parts = [NOTE, "# Python\n", inspect.getdoc(tradewind) or "", ""]
    for name in tradewind.__all__:
        thing = getattr(tradewind, name)
        if inspect.isfunction(thing):
            parts.append(f"## `{name}`\n\n```python\n{_signature(name, thing)}\n```\n\n{inspect.getdoc(thing)}\n")
        elif inspect.isclass(thing):
            parts.append(f"## `{name}`\n\n{inspect.getdoc(thing)}\n")
            parts += _members(thing)
        elif inspect.ismodule(thing):
            parts.append(f"## `tradewind.{name}`\n\n{inspect.getdoc(thing)}\n")
    return "\n".join(parts)


def _members(thing: type) -> list[str]:
    # Members that are inherited from private classes belong to the public class.
    shown = [base for base in reversed(thing.__mro__) if base is thing or base.__name__.startswith("_")]
    members = {name: member for base in shown for name, member in vars(base).items()}
    lines = []
    for name, member in members.items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        if inspect.isfunction(member):
            lines.append(f"```python\n{_signature(name, member)}\n```\n\n{inspect.getdoc(member)}\n")
        elif isinstance(member, property):
            lines.append(f"`.{name}`: {inspect.getdoc(member)}\n")
    return lines


def _signature(name: str, function: object) -> str:
    return f"{name}{inspect.signature(function)}"  # type: ignore[arg-type]


PAGES = {"cli.md": cli_page, "settings.md": settings_page, "python.md": python_page}


def main() -> int:
    """Write or check all pages."""
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"error: docs/reference: {', '.join(stale)} out of date; run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
