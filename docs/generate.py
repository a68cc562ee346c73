"""Generate the reference pages from the code: `make docs`. With --check, fail if a page is out of date."""

from __future__ import annotations

import inspect
import os
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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


def service_page() -> str:
    """Return the API of the transfer service: each request, and each document."""
    from tradewind.service.app import Service, create_app
    from tradewind.service.database import ServiceDatabase
    from tradewind.service.settings import ServiceSettings

    with TemporaryDirectory() as folder:
        database = ServiceDatabase(Path(folder))
        document = create_app(Service(ServiceSettings(Path(folder)), database)).openapi()
        database.close()
    parts = [
        NOTE,
        "# API of the transfer service\n",
        "`GET /openapi.json` has the same as an OpenAPI document. [The guide](../guides/service.md) shows its use.\n",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## `{method.upper()} {path}`\n\n{operation['description']}\n")
            parts += _service_request(operation)
    for name, schema in document["components"]["schemas"].items():
        rows = [
            f"| `{field}` | {_service_type(of)} | {_service_note(of)} |" for field, of in schema["properties"].items()
        ]
        table = "\n".join(["| field | type | |", "|---|---|---|", *rows])
        parts.append(f"## {name}\n\n{schema.get('description', '')}\n\n{table}\n")
    return "\n".join(parts)


def _service_request(operation: dict[str, Any]) -> list[str]:
    parameters = [f"`{of['name']}` ({of['in']})" for of in operation.get("parameters", ())]
    lines = [f"Parameters: {', '.join(parameters)}\n"] if parameters else []
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        lines.append(f"Body: {_service_type(body)}\n")
    for status, answer in operation["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema and status.startswith("2"):
            lines.append(f"Answer: {status}, {_service_type(schema)}\n")
    return lines


def _service_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_service_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    return f"{kind} of {_service_type(schema['items'])}" if kind == "array" else kind


def _service_note(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    words = [schema["description"]] if "description" in schema else []
    return "; ".join([*words, *([f"default `{default}`"] if default not in (None, "") else [])])


PAGES = {"cli.md": cli_page, "settings.md": settings_page, "python.md": python_page, "service-api.md": service_page}


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
