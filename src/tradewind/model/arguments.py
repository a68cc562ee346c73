"""Arguments of Python by option of the command line, for the messages of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tradewind.model.records import dataclass

__all__ = ["ARGUMENTS", "Argument", "in_python"]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of Python. `values` matches the values that an option may have in a message: they replace the …."""

    text: str
    values: str | None = None

    def written(self, value: str | None) -> str:
        """Return the argument with a value, if the message has one."""
        if value is None or re.fullmatch(r"[A-Z]+", value):
            return self.text
        if self.text.startswith("Preserve("):
            return f"Preserve({', '.join(f'{name}=True' for name in value.split(','))})"
        return self.text.replace("…", f'"{value}"')


_REGION = r"[a-z]+:[\w-]+"
_SIDES: Mapping[str, Argument] = {
    "endpoint": Argument("Access(endpoint=…)", r"https?://[^\s,;]+[^\s,;.]"),
    "region": Argument("Access(region=…)", _REGION),
    "profile": Argument("Access(profile=…)"),
    "path-style": Argument("Access(path_style=True)"),
    "no-sign": Argument("Access(anonymous=True)"),
    "requester-pays": Argument("Access(requester_pays=True)"),
    "ca-bundle": Argument("Access(ca_file=…)"),
    "role": Argument("Access(role=…)"),
    "identity": Argument("Access(lending=…)", "machine"),
}
#: By option of `cp`, `sync`, `mv` and `plan`, and by the options of one side of the other verbs.
ARGUMENTS: Mapping[str, Argument] = {
    **{f"--{side}{name}": argument for side in ("", "src-", "dst-") for name, argument in _SIDES.items()},
    **{f"--no-{side}-path-style": Argument("Access(path_style=False)") for side in ("src", "dst")},
    **{f"--no-{side}-requester-pays": Argument("Access(requester_pays=False)") for side in ("src", "dst")},
    **dict.fromkeys(("-r", "--recursive"), Argument("Options(recursive=True)")),
    **dict.fromkeys(("-n", "--no-clobber", "--no-overwrite"), Argument("Options(ignore_existing=True)")),
    **dict.fromkeys(("-y", "--yes"), Argument("Options(delete_over_half=True)")),
    **dict.fromkeys(("--include", "--exclude", "--exclude-from", "--filter-from"), Argument("ObjectFilter(rules=…)")),
    "--min-size": Argument("ObjectFilter(size_min_bytes=…)"),
    "--max-size": Argument("ObjectFilter(size_max_bytes=…)"),
    "--newer": Argument("ObjectFilter(newer_than_unix_ms=…)"),
    "--older": Argument("ObjectFilter(older_than_unix_ms=…)"),
    "--allow-empty": Argument("Options(allow_empty=True)"),
    "--as-subdir": Argument("Options(as_subdir=True)"),
    "--cache-control": Argument("AttributeRules(cache_control=…)"),
    "--cheapest": Argument("goal=…", "cheapest"),
    "--chunk-size": Argument("Options(chunk_bytes=…)"),
    "--compare": Argument("Options(compare=…)", "auto|checksum|size|time"),
    "--compress": Argument("Options(compress=True, codec=…)", "zstd|lz4|auto"),
    "--compression-ratio": Argument("compression_ratio=…"),
    "--concurrency": Argument("Options(concurrency=…)"),
    "--content-type": Argument("AttributeRules(content_type=…)"),
    "--deadline": Argument("Request(goal=Deadline(…))"),
    "--dedup": Argument("Options(deduplicate=True)"),
    "--dedup-window": Argument("Options(dedup_window_bytes=…)"),
    "--delete": Argument("Options(delete=True)"),
    "--dry-run": Argument("Options(dry_run=True)"),
    "--duplicates": Argument("Options(duplicate_fraction_max=…)"),
    "--effort": Argument("effort=…"),
    "--egress-used": Argument("egress_used_gb=…"),
    "--exactly": Argument("exactly=True"),
    "--fastest": Argument('goal="fastest"'),
    "--files-from": Argument("Options(files_from=…)"),
    "--flatten": Argument("Options(flatten=True)"),
    "--follow-symlinks": Argument("Access(follow_symlinks=True)"),
    "--frontier": Argument("tradewind.frontier"),
    "--fsync": Argument("Access(fsync=True)"),
    "--ignore-existing": Argument("Options(ignore_existing=True)"),
    "--keep-logs": Argument("keep_logs=True"),
    "--legal-hold": Argument("ObjectLock(legal_hold=True)"),
    "--limit-rate": Argument("Options(limit_bytes_per_s=…)"),
    "--max-bytes": Argument("Options(max_bytes=…)"),
    "--max-cost": Argument("Options(max_cost_usd=…) or Request(ceiling_usd=…)"),
    "--max-delete": Argument("Options(max_delete=…)"),
    "--max-vms": Argument("max_vms=…, or Request(machines_per_region=…)"),
    "--metadata": Argument("AttributeRules(metadata=…)"),
    "--metadata-directive": Argument("AttributeRules(directive=…)", "replace|keep"),
    "--min-throughput": Argument("Request(goal=MinThroughput(…))"),
    "--object-lock-mode": Argument("ObjectLock(retention=…)"),
    "--objects": Argument("objects=…"),
    "--preserve": Argument("Preserve(…)", "(?:mode|owner|time)(?:,(?:mode|owner|time))*"),
    "--problem": Argument("Engine.plan_problem"),
    "--replan": Argument("Request(replan=True)"),
    "--report": Argument("Options(report_file=…)"),
    "--retain-until": Argument("ObjectLock(retention=…)"),
    "--routes": Argument("Request(routes_max=…)"),
    "--share-keys": Argument('Access(lending="whole")'),
    "--sky": Argument("Request(sky=…)"),
    "--soonest": Argument('goal="soonest"'),
    "--spot": Argument("spot=True"),
    "--stall": Argument("Options(stall_s=…)"),
    "--storage-class": Argument("Options(storage_class=…)"),
    "--store-work": Argument("Options(store_work_s=…)"),
    "--tag": Argument("Options(tags=…)"),
    "--tags": Argument("Options(source_tags=…)", "keep|drop|auto"),
    "--tier": Argument("tier=…", "best|premium|standard"),
    "--to": Argument("a list"),
    "--topology": Argument("topology=…"),
    "--verify": Argument("Options(verify=…)", "auto|read"),
    "--via": Argument("Request(via=…)", "local|fleet|sky|auto"),
    "--vm-type": Argument("vm_types=…"),
    "--volume": Argument("volume_gb=…"),
}
#: Wordings that need other words in Python.
PHRASES: Mapping[str, str] = {
    "--ca-bundle FILE, --src-ca-bundle or --dst-ca-bundle": "Access(ca_file=…)",
    "--src-endpoint or --dst-endpoint": "Access(endpoint=…)",
    "--src-profile or --dst-profile": "Access(profile=…)",
    "--src-role or --dst-role": "Access(role=…)",
    "--src-identity machine or --dst-identity machine": 'Access(lending="machine")',
    "--src-region, --dst-region": "Access(region=…)",
    "--to DST": "a list",
    "--max-vms, or --machines of `fleet up`": "Request(machines_per_region=…)",
    "--via fleet or sky": 'Request(via="fleet") or Request(via="sky")',
    "-y to skip the question": "Options(ask_delete=False) to delete without a question",
    "--explain KEY shows which rule decides, or ": "",
    "`tradewind jobs list`": "Client.jobs()",
    "to copy one file: tradewind cp FILE DST": "to copy one file: tradewind.copy(FILE, DST)",
    "to copy one object: tradewind cp SRC DST, without -r and a final slash": (
        "to copy one object: tradewind.copy(SRC, DST), without Options(recursive=True) and a final slash"
    ),
    "use `tradewind cp`": "use tradewind.copy",
    "`frontier` has": "tradewind.frontier has",
    "`tradewind sync --delete`": "tradewind.sync with Options(delete=True)",
    "`tradewind cp --flatten`": "tradewind.copy with Options(flatten=True)",
}

_JOB = re.compile(r"`?\btradewind jobs (resume|cancel)(?: ([0-9]{8}-[0-9]{6}-[0-9a-z]+))?`?")
_COMMAND = "`[^`]*`"


def _either(names: Mapping[str, object]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


#: A wording, a whole command, or an option in a sentence with its value; a path such as /a-r or --delete-this is none.
_WORDS = re.compile(
    rf"(?P<phrase>{_either(PHRASES)})|(?P<command>{_COMMAND})|(?<![\w/.-])(?P<option>{_either(ARGUMENTS)})(?![\w/-])"
)
_PLACEHOLDER = re.compile(r" ([A-Z]{3,})(?![\w-])")


def in_python(text: str) -> str:
    """Return a message or hint with arguments of Python in place of the options of the command line.

    Whole commands between backticks stay, except those of jobs.
    """
    text = _JOB.sub(lambda match: f"Client.{match[1]}({match[2]!r})" if match[2] else f"Client.{match[1]}", text)
    parts, end = [], 0
    for match in _WORDS.finditer(text):
        if match.start() < end:
            continue
        parts.append(text[end : match.start()])
        written, end = _translated(text, match)
        parts.append(written)
    return "".join([*parts, text[end:]])


def _translated(text: str, match: re.Match[str]) -> tuple[str, int]:
    """Return the words for a match, and where the rest of the text begins."""
    if match["phrase"] is not None:
        return PHRASES[match["phrase"]], match.end()
    if match["option"] is None:
        return match[0], match.end()
    argument = ARGUMENTS[match["option"]]
    value = re.compile(rf" ({argument.values})(?![\w-])").match(text, match.end()) if argument.values else None
    value = value or (_PLACEHOLDER.match(text, match.end()) if "…" in argument.text else None)
    return argument.written(value and value[1]), value.end() if value else match.end()
