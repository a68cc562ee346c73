"""Argument parsing for all verbs: one parser per verb, built only when needed. Errors suggest the nearest option."""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

from tradewind.cli import EXIT_CODES
from tradewind.cli.config import SETTINGS, Configuration, unknown_variables
from tradewind.errors import UsageError

HINT_MARK = "\0hint: "
"""Separates message and hint in a value's error while argparse passes it on. No argument can contain it."""

NEGATIVE_AMOUNT = r"-\$?\.?\d"
"""Beginning of a negative amount, such as `-3GB`, `-.5USD` or `-$1`. No option begins like this."""


NEAR_MIN = 0.7
"""Least likeness of a mistyped option to the one that is proposed, by `difflib`: `--timeout` is not like `--tier`."""

NAME_MARK = "\0"
"""Prefix of a word after `--` while argparse parses it, so that it is not mistaken for an option."""

_REQUIRED = "the following arguments are required: "
"""Beginning of argparse's message about missing arguments."""

_CHOICE = r"(?s)argument (\S+): invalid choice: '(.*)' \(choose from .*\)"
"""Argparse's message about an argument or option that has none of its values."""


_SURPLUS = r"argument (\S+): ignored explicit argument '(.*)'"
"""Argparse's message about a value of a switch: `f` in `-rf`, `true` in `--recursive=true`."""

_LACKING = r"argument (\S+): expected .*\bargument(?:s|\(s\))?"
"""Argparse's message about an option without its value."""

# argparse would look for translations of its messages, which takes 1 ms, and would not be understood here.
argparse._ = str  # type: ignore[attr-defined]


class VerbParser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of exiting."""

    #: Hints for options that users of other tools expect, by option.
    hints: Mapping[str, str] = {}
    #: Hint for a missing argument; None for the choices of it, or the usage.
    missing_hint: str | None = None
    #: True if the words after `--` are another program's, which may be empty or not text.
    has_command = False
    #: The words that are parsed.
    _words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Raise UsageError. argparse calls this for every mistake."""
        what, _, hint = message.partition(HINT_MARK)
        if what.startswith(_REQUIRED):
            self._refuse_unknown_options()
            missing = self._without_optional(what.removeprefix(_REQUIRED))
            raise UsageError(
                f"missing {missing}",
                hint=self.missing_hint or self._choices_of(missing) or f"`{self.prog} --help` shows the usage",
            )
        if surplus := re.fullmatch(_SURPLUS, what):
            self._refuse_surplus(*surplus.groups())
        if choice := re.fullmatch(_CHOICE, what):
            self._refuse_choice(*choice.groups())
        if lacking := re.fullmatch(_LACKING, what):
            self._refuse_lacking(lacking[1])
        if what.startswith("argument -"):
            what = what.removeprefix("argument ")
        raise UsageError(what, hint=hint or f"`{self.prog} --help` shows the usage")

    def _refuse_unknown_options(self) -> None:
        """Raise UsageError for the first unknown long option: it may be the mistyped name of what is missing."""
        for word in self._words:
            if word == "--":
                return
            if word.startswith("--") and word.partition("=")[0] not in self._option_string_actions:
                self._refuse_unknown(word)

    def _refuse_surplus(self, names: str, value: str) -> NoReturn:
        """Raise UsageError for a value of a switch, which may be an unknown letter after a known one."""
        short = next((name for name in names.split("/") if not name.startswith("--")), None)
        words = [word for word in self._words if short is not None and word.startswith(short) and word.endswith(value)]
        if words and f"-{words[0]}" in self._option_string_actions:
            raise UsageError(f"unknown option {words[0]}", hint=f"write -{words[0]}")
        if words:
            self._refuse_unknown(f"-{value[0]}")
        name = names.rpartition("/")[2]
        raise UsageError(f"{name} takes no value: {name}={value}", hint=f"write {name} alone, or leave it out")

    def _refuse_lacking(self, names: str) -> NoReturn:
        """Raise UsageError for an option without its value."""
        name = names.rpartition("/")[2]
        action = next(action for action in self._actions if names in _names_of(action))
        wanted = _one_of(name, list(action.choices)) if action.choices else f"write {name} {action.metavar}"
        raise UsageError(f"{name} needs a value", hint=wanted)

    def _without_optional(self, missing: str) -> str:
        """Return the names of missing arguments without those that may be repeated any number of times, also zero."""
        optional = {
            action.metavar for action in self._get_positional_actions() if action.nargs == argparse.ZERO_OR_MORE
        }
        return ", ".join(name for name in missing.split(", ") if name not in optional) or missing

    def _refuse_choice(self, name: str, value: str) -> NoReturn:
        """Raise UsageError for a value that the argument or option cannot have, with the nearest one that it can."""
        from difflib import get_close_matches

        value = value.removeprefix(repr(NAME_MARK)[1:-1])
        choices = [
            str(choice) for action in self._actions if name in _names_of(action) for choice in action.choices or ()
        ]
        near = get_close_matches(value, choices, n=1)
        hint = f"did you mean {near[0]}?" if near else _one_of(name, choices)
        raise UsageError(f"{name} {value}: no such value", hint=hint)

    def _choices_of(self, missing: str) -> str | None:
        """Return a hint with the values of the first missing argument, if it has a fixed set of them."""
        first = missing.partition(", ")[0]
        for action in self._actions:
            if action.choices and action.metavar == first:
                return _one_of(first, list(action.choices))
        return None

    def parse_strictly(self, words: list[str]) -> argparse.Namespace:
        """Parse like parse_args, but suggest the nearest option for an unknown one, and refuse empty arguments."""
        self._refuse_empty(words[: words.index("--")] if self.has_command and "--" in words else words)
        self._words = words
        marked = _names_marked(self._with_negative_amounts(words))
        namespace, unknown = self.parse_known_intermixed_args(marked)
        if unknown:
            self._refuse_unknown(unknown[0])
        for action in self._get_positional_actions():
            setattr(namespace, action.dest, _unmarked(getattr(namespace, action.dest)))
        return namespace

    def _refuse_unknown(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            word = word.removeprefix(NAME_MARK)
            # argparse takes `-1` for a number, so the word before may be the one that is too many.
            dashed = next((one for one in self._words if re.fullmatch(r"-\d+", one)), None)
            if dashed is not None:
                hint = self.hints.get(dashed, f"`{self.prog} --help` shows the usage")
                raise UsageError(f"unknown option {dashed}", hint=hint)
            raise UsageError(f"unknown argument {word}", hint=f"`{self.prog} --help` shows the usage")
        word = word.partition("=")[0]
        options = [option for action in self._actions for option in action.option_strings]
        near = _near(word, options)
        near = near or [option for option in options if option == word.lower()]
        meant = f"did you mean {' or '.join(near)}?" if near else self._hint_of_letters(word, options)
        from tradewind.cli.other_tools import option_hint

        if not word.startswith("--") and word[:2] in self.hints:
            word = word[:2]  # The first of several letters, as in -avz.
        hint = self.hints.get(word) or option_hint(word, options) or meant
        raise UsageError(f"unknown option {word}", hint=hint)

    def _hint_of_letters(self, word: str, options: Sequence[str]) -> str:
        """Return the hint for a word that may be several letters of another tool, as in -avz, or a name."""
        from tradewind.cli.other_tools import option_hint

        of_first = None if word.startswith("--") else option_hint(word[:2], options)
        if of_first is None:
            return f"`{self.prog} --help` shows the usage"
        return f"{of_first}; write a name that begins with a dash after --"

    def _refuse_empty(self, words: list[str]) -> None:
        """Raise UsageError for an empty argument, which usually comes from an unset shell variable, and for bytes that
        are not text.
        """
        before = ""
        for word in words:
            _refuse_other_text(word)
            name, equals, content = word.partition("=")
            if not word.strip() or (name.startswith("--") and equals and not content.strip()):
                what = name.strip() or (before if before.startswith("-") else "")
                raise UsageError(f"an empty argument{f' to {what}' if what else ''}", hint="is a shell variable unset?")
            before = word

    def _with_negative_amounts(self, words: list[str]) -> list[str]:
        """Return the words with an option and its negative amount joined: argparse would take `-3GB` for an option."""
        taking = {option for action in self._actions if action.nargs is None for option in action.option_strings}
        joined: list[str] = []
        for word in words:
            if joined and joined[-1] in taking and "--" not in joined and re.match(NEGATIVE_AMOUNT, word):
                joined[-1] += f"={word}" if joined[-1].startswith("--") else word
            else:
                joined.append(word)
        return joined


def _names_of(action: argparse.Action) -> list[str]:
    """Return the names by which argparse's messages may call an argument or option."""
    return [*action.option_strings, "/".join(action.option_strings), str(action.metavar), action.dest]


def _near(word: str, options: Sequence[str]) -> list[str]:
    """Return the long option that a word may be a mistyped form of, that of both sides, or none. Dashes say nothing."""
    from difflib import get_close_matches

    names = {option[2:]: [option] for option in options if option.startswith("--")}
    for side in ("--src-", "--dst-"):
        for option in options:
            if option.startswith(side) and f"--{option[len(side) :]}" not in options:
                names.setdefault(option[len(side) :], []).append(option)
    return [
        option for name in get_close_matches(word.lstrip("-"), names, n=1, cutoff=NEAR_MIN) for option in names[name]
    ]


def _one_of(name: str, choices: list[str]) -> str:
    return f"{name} is {choices[0]}" if len(choices) == 1 else f"{name} is one of {', '.join(choices)}"


def _refuse_other_text(word: str) -> None:
    """Raise UsageError for bytes that are not UTF-8: object stores have no such names."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r}: not UTF-8",
            hint="rename the file, or use -r on its directory; in a glob, * stands for such bytes too",
        ) from None


def _names_marked(words: list[str]) -> list[str]:
    """Return the words without the first `--`. Words after it that begin with a dash get NAME_MARK."""
    if "--" not in words:
        return words
    end = words.index("--")
    names = [NAME_MARK + word if word.startswith("-") and word != "-" else word for word in words[end + 1 :]]
    return words[:end] + names


def _unmarked(value: Any) -> Any:
    """Return a positional argument, or a list of them, without NAME_MARK."""
    if isinstance(value, list):
        return [_unmarked(one) for one in value]
    return value.removeprefix(NAME_MARK) if isinstance(value, str) else value


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter of help as wide as the terminal.

    argparse makes one for each option, and would import `shutil` for the width, which takes 2 ms.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_terminal_columns() - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Return the lines of an option's help. A name such as `--retain-until` stays on its line."""
        from textwrap import wrap

        return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a description. Paragraphs that are too wide are filled again; lists, which are indented, stay."""
        from textwrap import fill

        parts = text.split("\n\n")
        for number, part in enumerate(parts):
            lines = part.splitlines()
            if not any(line.startswith(" ") for line in lines) and max(map(len, lines), default=0) > width - len(
                indent
            ):
                parts[number] = fill(" ".join(lines), width - len(indent), break_on_hyphens=False)
        return super()._fill_text("\n\n".join(parts), width, indent)


@functools.cache
def _terminal_columns() -> int:
    """Return the width of the terminal, as `shutil.get_terminal_size` does."""
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", "0"))) > 0:
            return columns
    with suppress(AttributeError, ValueError, OSError):
        if (columns := os.get_terminal_size(sys.__stdout__.fileno()).columns) > 0:  # type: ignore[union-attr]
            return columns
    return 80


def build_parser(verb: str, module: ModuleType) -> VerbParser:
    """Return the parser of a verb. Its reference page and the shell completion are generated from it too."""
    parser = VerbParser(
        prog=f"tradewind {verb}",
        usage=f"tradewind {verb} {module.USAGE}",
        description=module.HELP,
        epilog=f"examples:\n{module.EXAMPLES}\n\n{EXIT_CODES}",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.hints = getattr(module, "HINTS", {})
    parser.missing_hint = getattr(module, "MISSING_HINT", None)
    parser.has_command = getattr(module, "HAS_COMMAND", False)
    flags = ("-h", "--help") if getattr(module, "H_IS_HELP", True) else ("--help",)
    parser.add_argument(*flags, action="help", help="show this help message and exit")
    module.add_arguments(parser)
    group = parser.add_argument_group("everywhere")
    group.add_argument("-q", "--quiet", action="store_true", help="print only requested output and errors")
    group.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an internal error")
    group.add_argument("--json", action="store_true", help="print JSON documents, one per line, on standard output")
    group.add_argument("-y", "--yes", action="store_true", help="answer yes to all questions")
    group.add_argument("--config", metavar="FILE", help="use this file instead of the default config.toml")
    group.add_argument("--profile", metavar="NAME", help="use the settings in [profiles.NAME] of config.toml")
    return parser


def parse(verb: str, module: ModuleType, words: list[str]) -> argparse.Namespace:
    """Parse the words. Settings without a flag get their values from environment and configuration. Raises UsageError.

    `typed` of the result has the names of the settings with a flag.
    """
    args = build_parser(verb, module).parse_strictly(words)
    args.verb = verb
    args.words = words
    args.configuration = Configuration(args.config, args.profile)
    for line in unknown_variables():
        print(line, file=sys.stderr)
    args.typed = frozenset(name for name in SETTINGS if getattr(args, name, None) is not None)
    for name in SETTINGS:
        if name not in args.typed:
            setattr(args, name, args.configuration.value(name))
    return args


class Switch(argparse.BooleanOptionalAction):
    """A switch and its negation.

    BooleanOptionalAction alone would treat every name that begins with `--no-` as a negation, such as `--no-sign`.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any) -> None:
        self._names = frozenset(option_strings)
        super().__init__(option_strings, dest, **others)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Set the value. argparse calls this for each use of the switch."""
        setattr(namespace, self.dest, option_string in self._names)


def add_setting(
    parser: Any, name: str, *flags: str, metavar: str | None = None, repeated: bool = False, words: str | None = None
) -> None:
    """Add the flag of a setting: `--limit-rate VALUE`, or `--NAME/--no-NAME` for a switch.

    With `repeated` a flag with a value can be repeated, and its values form a list. `words` replace the setting's help.
    """
    from tradewind.cli.config import parse_switch

    setting = SETTINGS[name]
    names = flags or (f"--{name.replace('_', '-')}",)
    default = f" (default {setting.default})" if setting.default and setting.parse is not parse_switch else ""
    help_text = ((words or setting.help) + default).replace("%", "%%")
    if setting.parse is parse_switch:
        switch = parser.add_argument(*names, dest=name, action=Switch, default=None, help=help_text)
        if "no" in name.split("_"):
            # Help and completion do not show `--no-no-sign`, which the parser knows by now.
            switch.option_strings = list(names)
    else:
        action = "append" if repeated else "store"
        kind = typed(setting.parse)
        parser.add_argument(*names, dest=name, metavar=metavar or "VALUE", action=action, type=kind, help=help_text)


def typed(parse_text: Any) -> Any:
    """Return a `type` for argparse that shows the user the message of the parser's UsageError."""

    def convert(text: str) -> Any:
        try:
            return parse_text(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(f"{error}{HINT_MARK}{error.hint or ''}") from None

    return convert
