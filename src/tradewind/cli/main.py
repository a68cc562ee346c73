"""Entry point: find the verb, import only its file, map errors to exit codes."""

from __future__ import annotations

import atexit
import gc
import sys

from tradewind._version import __version__
from tradewind.cli import ALIASES, EXIT_CODES, VERBS

#: As in `tradewind/__init__.py`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from tradewind.cli.signals import Interrupts

_GLOBAL_FLAGS = ("-q", "--quiet", "-v", "--verbose", "--json", "-y", "--yes")
_GLOBAL_VALUES = ("--config", "--profile")
_COLLECTION_THRESHOLD = 50_000
"""New objects before Python looks for garbage, by default 700. Importing makes many objects and hardly any garbage."""


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        print(f"tradewind {__version__}")
        return 0
    if argv is None:
        gc.set_threshold(_COLLECTION_THRESHOLD)
        # At its exit Python would look for garbage among all objects, for 8 of a command's 100 CPU-ms.
        atexit.register(gc.freeze)
    try:
        from tradewind.cli.signals import Interrupts
        from tradewind.cli.streams import standard_streams
        from tradewind.errors import name_options

        name_options()
        with standard_streams(), Interrupts(last=argv is None) as interrupts:
            code = _guarded(words, interrupts)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        # Python notes that an interrupt left code that was executed from a string, as a record's methods are, and would
        # end `python -m` by a signal in place of this exit code. The next such code clears the note.
        exec("")
        return 130
    if argv is None:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process, after everything that is registered for the exit, unless another thread still works.

    Python would free all objects one by one first, for 4 of a command's 100 CPU-ms. The streams are flushed by now.
    """
    import os
    import threading

    if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
        atexit._run_exitfuncs()
        os._exit(code)


def _guarded(words: list[str], interrupts: Interrupts) -> int:
    from tradewind.cli.streams import settle_output

    try:
        code = _run(words, interrupts)
        settle_output()
    except Exception as error:  # The only place that catches everything.
        if interrupts.explain(error):
            raise KeyboardInterrupt from error
        return _report(error, words)
    return code


def _run(words: list[str], interrupts: Interrupts) -> int:
    moved, rest = _leading_flags(words)
    if not rest or rest[0] in ("-h", "--help") or rest == ["help"]:
        print(_help())
        return 0 if rest else 2
    verb, *arguments = rest
    if verb == "help":
        verb, *arguments = [*arguments, "--help"]
    verb = ALIASES.get(verb, verb)
    if verb not in VERBS:
        _refuse_verb(verb)
    from importlib import import_module

    from tradewind.cli.arguments import parse

    module = import_module(f"tradewind.cli.{verb}")
    settings = parse(verb, module, moved + arguments)
    interrupts.started()
    code: int = module.run(settings)
    return code


def _leading_flags(words: list[str]) -> tuple[list[str], list[str]]:
    """Split flags before the verb from the rest: `tradewind -q cp …` means `tradewind cp -q …`."""
    index = 0
    while index < len(words):
        if words[index] in _GLOBAL_FLAGS or words[index].startswith(tuple(f"{flag}=" for flag in _GLOBAL_VALUES)):
            index += 1
        elif words[index] in _GLOBAL_VALUES:
            index += 2
        else:
            break
    return words[:index], words[index:]


def _refuse_verb(verb: str) -> None:
    from difflib import get_close_matches

    from tradewind.cli.other_tools import verb_hint
    from tradewind.errors import UsageError

    near = get_close_matches(verb, VERBS, n=1, cutoff=0.65)
    if verb.startswith("--"):
        near = get_close_matches(verb, ("--help", "--version", *_GLOBAL_FLAGS, *_GLOBAL_VALUES), n=1)
    hint = verb_hint(verb) or (f"did you mean `tradewind {near[0]}`?" if near else "`tradewind --help` lists all verbs")
    what = "option" if verb.startswith("-") else "command"
    raise UsageError(f"unknown {what} {verb}", hint=hint)


def _report(error: Exception, words: list[str]) -> int:
    from tradewind.errors import TradewindError, with_paths

    if not isinstance(error, TradewindError):
        if isinstance(error, FileNotFoundError) and error.filename is None and not _has_directory():
            print("error: the current directory has been removed", file=sys.stderr)
            print("hint: change to another one", file=sys.stderr)
            return 1
        if isinstance(error, OSError) and error.strerror:
            print(f"error: {error.filename or ''}: {error.strerror}".replace(": :", ":"), file=sys.stderr)
            return 1
        if "-v" in words or "--verbose" in words:
            import traceback

            traceback.print_exc()
        print(f"error: internal: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: this is a bug in tradewind; run again with -v and report what it prints", file=sys.stderr)
        return 1
    print(with_paths(f"error: {error}"), file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _has_directory() -> bool:
    import os

    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _help() -> str:
    verbs = "\n".join(f"  {verb:<11} {what}" for verb, what in VERBS.items())
    return f"""\
usage: tradewind VERB …

Move bulk data between object stores and prove that every byte arrived.

verbs:
{verbs}

places: s3://BUCKET/KEY  gs://BUCKET/KEY  az://ACCOUNT/CONTAINER/KEY  r2://ACCOUNT/BUCKET/KEY
        file:///PATH  PATH  - (standard input or output)  https://… of S3, GCS and Azure

slashes: cp -r, sync and mv -r copy the contents of a directory, with or without a trailing slash.
         One object copied to x/ becomes x/NAME; copied to x, it becomes x, whether x exists or not.

Details: `tradewind VERB --help`. Settings: `tradewind config show`.

{EXIT_CODES}"""


if __name__ == "__main__":
    sys.exit(main())
