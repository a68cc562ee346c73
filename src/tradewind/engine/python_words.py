"""Errors of the Python interface name its arguments, where those of the command line name options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tradewind.errors import TradewindError

#: What Python callers write for an option of the command line.
ARGUMENTS = {
    "-r": "Options(recursive=True)",
    "--allow-empty": "Options(allow_empty=True)",
    "--as-subdir": "Options(as_subdir=True)",
    "--files-from": "Options(files_from=…)",
    "--delete": "Options(delete=True)",
    "--max-delete": "Options(max_delete=…)",
    "--max-cost": "Options(max_cost_usd=…)",
    "--max-bytes": "Options(max_bytes=…)",
    "--stall": "Options(stall_s=…)",
    "--store-work": "Options(store_work_s=…)",
    "--verify read": 'Options(verify="read")',
    "--include": "ObjectFilter(rules=…)",
    "--exclude": "ObjectFilter(rules=…)",
    "--follow-symlinks": "Access(follow_symlinks=True)",
    "--ca-bundle FILE, --src-ca-bundle or --dst-ca-bundle": "Access(ca_file=…)",
    "--src-endpoint": "Access(endpoint=…)",
    "--dst-endpoint": "Access(endpoint=…)",
    "--src-profile": "Access(profile=…)",
    "--dst-profile": "Access(profile=…)",
    "--src-no-sign": "Access(anonymous=True)",
    "--to DST": "a list of them",
    "`tradewind sync --delete`": "tradewind.sync with Options(delete=True)",
}
_NAMES = "|".join(re.escape(name) for name in sorted(ARGUMENTS, key=len, reverse=True))
#: An option in a sentence; a path such as /a-r or --delete-this is none.
_OPTION = re.compile(rf"(?<![\w/.-])(?:{_NAMES})(?![\w/-])")
_JOB = re.compile(r"`?\btradewind jobs (resume|cancel)(?: ([0-9]{8}-[0-9]{6}-[0-9a-z]+))?`?")


def in_python(text: str) -> str:
    """Return a message or hint with the arguments of the Python interface in place of the command line's options."""
    text = _JOB.sub(lambda match: f"Client.{match[1]}({match[2]!r})" if match[2] else f"Client.{match[1]}", text)
    return _OPTION.sub(lambda match: ARGUMENTS[match[0]], text)


@contextmanager
def python_words() -> Iterator[None]:
    """Translate the message and the hint of an error that leaves the block."""
    try:
        yield
    except TradewindError as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0]),)
        error.hint = error.hint and in_python(error.hint)
        raise
