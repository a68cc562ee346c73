"""Hints for commands and options that users of aws, gsutil, rclone, s5cmd, azcopy and juicefs type, and for actions
that are typed without their command.

The guide `docs/guides/coming-from.md` has the whole translation.
"""

from __future__ import annotations

from collections.abc import Container

__all__ = ["option_hint", "verb_hint"]

#: Options of other tools, and ours with the same effect.
OPTIONS = {
    **dict.fromkeys(("--dryrun", "--dry"), "--dry-run"),
    **dict.fromkeys(("--endpoint-url", "--s3-endpoint"), "--endpoint"),
    **dict.fromkeys(("--no-sign-request", "--anonymous"), "--no-sign"),
    **dict.fromkeys(("--request-payer", "--s3-requester-pays"), "--requester-pays"),
    **dict.fromkeys(("--size-only",), "--compare size"),
    **dict.fromkeys(("--checksum", "--compare-hash"), "--compare checksum"),
    **dict.fromkeys(("--delete-dst", "--delete-destination", "--delete-during", "--delete-after"), "--delete"),
    **dict.fromkeys(("--bwlimit", "--cap-mbps"), "--limit-rate RATE"),
    **dict.fromkeys(("--max-transfer",), "--max-bytes SIZE"),
    **dict.fromkeys(("--max-age", "--include-after"), "--newer TIME"),
    **dict.fromkeys(("--min-age", "--include-before"), "--older TIME"),
    **dict.fromkeys(
        ("--transfers", "--checkers", "--numworkers", "--threads", "--jobs", "-j", "--parallel", "--workers"),
        "--concurrency N",
    ),
    **dict.fromkeys(
        ("--part-size", "--block-size-mb", "--s3-chunk-size", "--multipart-chunksize"), "--chunk-size SIZE"
    ),
    **dict.fromkeys(("--include-pattern",), "--include GLOB"),
    **dict.fromkeys(("--exclude-pattern", "--exclude-path"), "--exclude GLOB"),
    **dict.fromkeys(("--ignore-file", "--exclude-file"), "--exclude-from FILE"),
    **dict.fromkeys(("--list-of-files",), "--files-from FILE"),
    **dict.fromkeys(("--s3-storage-class", "--block-blob-tier"), "--storage-class CLASS"),
    **dict.fromkeys(("--retention-mode", "--retention", "--s3-object-lock-mode"), "--object-lock-mode MODE"),
    **dict.fromkeys(
        ("--retention-duration", "--object-lock-retain-until-date", "--s3-object-lock-retain-until-date"),
        "--retain-until TIME",
    ),
    **dict.fromkeys(("--object-lock-legal-hold-status", "--s3-object-lock-legal-hold-status"), "--legal-hold"),
    **dict.fromkeys(("--copy-links",), "--follow-symlinks"),
    **dict.fromkeys(("--all-versions",), "--versions"),
    **dict.fromkeys(("--human-readable",), "--human"),
    **dict.fromkeys(("--perms", "-p"), "--preserve mode,owner,time"),
    **dict.fromkeys(("--expires-in", "--duration"), "--expires TIME"),
    **dict.fromkeys(("--source-region",), "--src-region NAME"),
    **dict.fromkeys(("--worker",), "--via fleet"),
    **dict.fromkeys(("--s2s-preserve-blob-tags", "--copy-props"), "--tags keep"),
}

_PROGRESS = "progress is shown on a terminal only; -q prints only errors"
_ENCRYPTION = "objects are encrypted with the default key of the bucket; a key cannot be chosen"
_KEY_OPTIONS = (
    *("--sse", "--sse-kms-key-id", "--sse-c", "--sse-c-key", "--sse-c-copy-source", "--sse-c-copy-source-key"),
    *("--s3-server-side-encryption", "--s3-sse-kms-key-id", "--s3-sse-customer-key", "--s3-sse-customer-algorithm"),
    *("--enc-c", "--enc-kms", "--enc-s3", "--encryption-key", "--decryption-keys", "--cpk-by-name", "--cpk-by-value"),
)
_ACCESS = "access lists are not set or copied: use the policy of the bucket"
_UPDATE = "`tradewind sync` copies what differs, and replaces newer objects, too; --ignore-existing replaces nothing"
_ATTRIBUTES = "only the attributes of --content-type, --cache-control and --metadata can be set; others are kept"
_VERSIONS = "leave it out: only the latest version of an object is read; `tradewind rm --versions` deletes all"
_NO_OPTION = "Tradewind has no such option; docs/guides/coming-from.md translates those of other tools"
_ABSENT_OPTIONS = (
    *(
        "--backup-dir",
        "--suffix",
        "--compare-dest",
        "--copy-dest",
        "--track-renames",
        "--delete-excluded",
        "--immutable",
    ),
    *("--ignore-case-sync", "--fix-case", "--ignore-errors", "--ignore-size", "--max-duration", "--links"),
    *("--name-transform", "--exit-on-error", "--blob-type", "--existing", "--limit", "--start", "--end"),
    "--encrypt-rsa-key",
)
#: Options that need none of ours, or that have no counterpart.
NEEDLESS = {
    **dict.fromkeys(("--no-progress", "--progress", "--only-show-errors", "--stats"), _PROGRESS),
    # In gsutil -P keeps attributes, and -L names a log.
    "-P": f"{_PROGRESS}; --preserve mode,owner,time keeps these attributes of files",
    "-L": "write --follow-symlinks to follow links, or --report FILE for a line about each object",
    "--exact-timestamps": (
        "--compare time copies again where the copy is older than its source, or between directories, of another time"
    ),
    **dict.fromkeys(("--acl", "--grants", "--preserve-permissions"), _ACCESS),
    **dict.fromkeys(_KEY_OPTIONS, _ENCRYPTION),
    **dict.fromkeys(("--no-follow-symlinks",), "leave it out: symbolic links are skipped"),
    **dict.fromkeys(("--summarize",), "`tradewind du URL` counts objects and sums sizes"),
    **dict.fromkeys(
        ("--no-verify-ssl", "--no-check-certificate"), "name the CA of the server with a --ca-bundle option"
    ),
    **dict.fromkeys(("--update", "-u"), _UPDATE),
    **dict.fromkeys(
        ("--ignore-times", "--force-update"),
        "leave it out: `tradewind cp -r` copies everything, even what is there already",
    ),
    **dict.fromkeys(
        ("--if-size-differ", "--if-source-newer", "-s"), "`tradewind sync` copies only objects that differ"
    ),
    "--overwrite": "`tradewind sync` copies only what differs; --ignore-existing replaces nothing",
    **dict.fromkeys(("--version-id", "--source-version-id"), _VERSIONS),
    **dict.fromkeys(("--content-encoding", "--content-disposition", "--content-language", "--expires"), _ATTRIBUTES),
    **dict.fromkeys(("--website-redirect", "--no-guess-mime-type"), _ATTRIBUTES),
    **dict.fromkeys(_ABSENT_OPTIONS, _NO_OPTION),
    **dict.fromkeys(
        ("-a", "--archive"), "-r copies a tree; --preserve mode,owner,time keeps these attributes of files"
    ),
    **dict.fromkeys(
        ("-m", "--from-to", "--expected-size", "--page-size", "--put-md5", "--check-md5", "--raw", "--dirs"),
        "leave it out: it is not needed",
    ),
    **dict.fromkeys(
        ("--create-empty-src-dirs", "--fast-list", "--no-traverse"),
        "leave it out: it is not needed",
    ),
    "--max-depth": "use a pattern: 'DIR/*' matches what is in one directory",
    **dict.fromkeys(("--check-all", "--check-new"), "copies are always verified; `tradewind check` compares two trees"),
    **dict.fromkeys(("--delete-src",), "use `tradewind mv -r`"),
    **dict.fromkeys(("--log-level", "--debug"), "leave it out: `tradewind jobs show` has the details of a job"),
}

#: Options that cp and mv do not have.
SYNC_OPTIONS = ("--compare", "--delete", "--max-delete")

#: Commands of other tools, and ours.
VERBS = {
    **dict.fromkeys(("s3", "gs", "az", "storage", "blob", "s3api"), ""),
    **dict.fromkeys(("copy", "copyto", "put", "get", "upload", "download"), "cp"),
    **dict.fromkeys(("move", "moveto"), "mv"),
    **dict.fromkeys(("rsync", "mirror"), "sync"),
    **dict.fromkeys(("delete", "del", "remove", "deletefile"), "rm"),
    **dict.fromkeys(("purge",), "rm -r"),
    **dict.fromkeys(("list", "lsf", "lsl", "lsd", "lsjson", "dir", "find"), "ls"),
    **dict.fromkeys(("tree",), "ls -r"),
    **dict.fromkeys(("size",), "du"),
    **dict.fromkeys(("mkdir", "make"), "mb"),
    **dict.fromkeys(("rmdir",), "rb"),
    **dict.fromkeys(("info", "show", "md5sum", "sha1sum", "hashsum"), "stat"),
    **dict.fromkeys(("pipe", "rcat"), "cp -"),
    **dict.fromkeys(("diff", "cryptcheck"), "check"),
    **dict.fromkeys(("signurl", "share", "link"), "presign"),
    **dict.fromkeys(("configure", "login"), "doctor"),
    **dict.fromkeys(("version",), "--version"),
}
#: Actions, and the commands that have them.
ACTIONS = {
    **{name: (f"jobs {name}",) for name in ("attach", "wait", "pause", "resume", "cancel", "prune")},
    **{name: (f"accelerate {name}",) for name in ("advise", "generate", "replan")},
    "sweep": ("fleet sweep",),
    "explain": ("fleet explain",),
    "status": ("jobs list", "accelerate status"),
    "up": ("fleet up", "accelerate up"),
    "down": ("fleet down", "accelerate down"),
}
#: Commands that have no counterpart.
ABSENT_VERBS = {
    "run": "to run a file of commands, use a shell; `tradewind accelerate run` runs a program through proxies",
    **dict.fromkeys(
        ("website", "bucket-version", "versioning", "lifecycle", "cors"),
        "the settings of a bucket are not changed: use a tool of its cloud",
    ),
    "select": "to query an object, use a tool of its cloud",
    "mount": "stores cannot be mounted; `tradewind cat` prints objects",
    "cleanup": "`tradewind jobs cancel` aborts the unfinished uploads of a job",
    "touch": "`tradewind cp - URL < /dev/null` writes an empty object",
    **dict.fromkeys(
        ("bench", "objbench", "perf"), "`tradewind demo` races two paths; docs/benchmarks.md says how to measure"
    ),
}


def option_hint(option: str, known: Container[str]) -> str | None:
    """Return a hint for an option of another tool; None if there is none. `known` has the options of the command."""
    if needless := NEEDLESS.get(option):
        return needless
    ours, _, value = OPTIONS.get(option, option).partition(" ")
    if ours in SYNC_OPTIONS and ours not in known and "--flatten" in known:
        return f"it is an option of `tradewind sync`: {ours} {value}".rstrip()
    sides = [f"--{side}-{ours.removeprefix('--')}" for side in ("src", "dst")]
    names = [ours] if ours in known else [side for side in sides if side in known]
    if option not in OPTIONS or not names:
        return None
    return f"write {' or '.join(f'{name} {value}'.rstrip() for name in names)}"


def verb_hint(verb: str) -> str | None:
    """Return a hint for a command of another tool, or for an action without its command; None if there is none."""
    if absent := ABSENT_VERBS.get(verb.lower()):
        return absent
    if commands := ACTIONS.get(verb.lower()):
        return "write " + " or ".join(f"`tradewind {command}`" for command in commands)
    ours = VERBS.get(verb.lower())
    if ours is None:
        return None
    return f"write `tradewind {ours}`" if ours else f"leave out {verb}: `tradewind ls s3://BUCKET`"
