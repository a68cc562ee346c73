"""Hints for commands and options that users of aws, gsutil, rclone, s5cmd, azcopy and juicefs type, and for actions
that are typed without their command.

The guide `docs/guides/coming-from.md` has the whole translation.
"""

from __future__ import annotations

from collections.abc import Container

__all__ = ["option_hint", "verb_hint"]

#: Options of other tools, and ours with the same effect.
OPTIONS = {
    **dict.fromkeys(("--dryrun", "--dry", "--fake"), "--dry-run"),
    **dict.fromkeys(("--endpoint-url", "--s3-endpoint"), "--endpoint"),
    **dict.fromkeys(("--source-endpoint", "--source-endpoint-url", "--src-endpoint-url"), "--src-endpoint URL"),
    **dict.fromkeys(
        ("--destination-endpoint", "--dest-endpoint", "--dest-endpoint-url", "--dst-endpoint-url"), "--dst-endpoint URL"
    ),
    **dict.fromkeys(("--destination-region", "--dest-region"), "--dst-region NAME"),
    **dict.fromkeys(("--source-profile",), "--src-profile NAME"),
    **dict.fromkeys(("--destination-profile", "--dest-profile"), "--dst-profile NAME"),
    **dict.fromkeys(("--s3-region",), "--region NAME"),
    **dict.fromkeys(("--s3-force-path-style",), "--path-style"),
    **dict.fromkeys(("--ca-cert", "--cacert"), "--ca-bundle FILE"),
    **dict.fromkeys(("--no-sign-request", "--anonymous"), "--no-sign"),
    **dict.fromkeys(("--request-payer", "--s3-requester-pays"), "--requester-pays"),
    **dict.fromkeys(("--size-only",), "--compare size"),
    **dict.fromkeys(("--checksum", "--compare-hash"), "--compare checksum"),
    **dict.fromkeys(("--delete-dst", "--delete-destination", "--delete-during", "--delete-after"), "--delete"),
    **dict.fromkeys(("--delete-before", "--delete-delay", "--delete-extra", "-d"), "--delete"),
    **dict.fromkeys(("--delete-unmatched-destination-objects",), "--delete"),
    **dict.fromkeys(("--max-delete-size",), "--max-delete N"),
    **dict.fromkeys(("--bwlimit", "--bwlimit-file", "--cap-mbps", "--rate-limit", "--ratelimit"), "--limit-rate RATE"),
    **dict.fromkeys(("--bandwidth", "--bandwidth-limit", "--max-bandwidth", "--speed-limit"), "--limit-rate RATE"),
    **dict.fromkeys(("--limit-upload", "--limit-download"), "--limit-rate RATE"),
    **dict.fromkeys(("--max-transfer",), "--max-bytes SIZE"),
    **dict.fromkeys(("--budget", "--cost", "--max-price"), "--max-cost USD"),
    **dict.fromkeys(("--max-age", "--include-after", "--newer-than"), "--newer TIME"),
    **dict.fromkeys(("--min-age", "--include-before", "--older-than"), "--older TIME"),
    **dict.fromkeys(
        ("--transfers", "--checkers", "--numworkers", "--threads", "--jobs", "-j", "--parallel", "--workers"),
        "--concurrency N",
    ),
    **dict.fromkeys(
        ("--max-workers", "--num-threads", "--parallelism", "--s3-upload-concurrency", "--multi-thread-streams"),
        "--concurrency N",
    ),
    **dict.fromkeys(
        ("--part-size", "--block-size-mb", "--s3-chunk-size", "--multipart-chunksize"), "--chunk-size SIZE"
    ),
    **dict.fromkeys(("--multi-thread-chunk-size", "--put-blob-size-mb"), "--chunk-size SIZE"),
    **dict.fromkeys(("--include-pattern", "--include-path", "--glob", "--pattern"), "--include GLOB"),
    **dict.fromkeys(("--exclude-pattern", "--exclude-path", "--exclude-dir"), "--exclude GLOB"),
    **dict.fromkeys(("--ignore-file", "--exclude-file"), "--exclude-from FILE"),
    **dict.fromkeys(("--include-from",), "--filter-from FILE"),
    **dict.fromkeys(("--list-of-files", "--files-from-raw"), "--files-from FILE"),
    **dict.fromkeys(("--read-paths-from-stdin", "--stdin"), "--files-from -"),
    **dict.fromkeys(("--skip-existing",), "--ignore-existing"),
    **dict.fromkeys(("--log", "--log-file", "--manifest-path", "--itemize-changes"), "--report FILE"),
    **dict.fromkeys(("--blob-tags",), "--tag NAME=VALUE"),
    **dict.fromkeys(("--attr", "--custom-metadata", "--metadata-set"), "--metadata NAME=VALUE"),
    **dict.fromkeys(("--output", "--format", "--output-type", "--use-json-log"), "--json"),
    **dict.fromkeys(("--silent",), "--quiet"),
    **dict.fromkeys(("-R",), "-r"),
    **dict.fromkeys(("--download",), "--read"),
    **dict.fromkeys(("--deduplicate", "--deduplication"), "--dedup on"),
    **dict.fromkeys(("--s3-storage-class", "--block-blob-tier"), "--storage-class CLASS"),
    **dict.fromkeys(("--retention-mode", "--retention", "--s3-object-lock-mode"), "--object-lock-mode MODE"),
    **dict.fromkeys(
        ("--retention-duration", "--object-lock-retain-until-date", "--s3-object-lock-retain-until-date"),
        "--retain-until TIME",
    ),
    **dict.fromkeys(("--object-lock-legal-hold-status", "--s3-object-lock-legal-hold-status"), "--legal-hold"),
    **dict.fromkeys(("--copy-links",), "--follow-symlinks"),
    **dict.fromkeys(("--all-versions",), "--versions"),
    **dict.fromkeys(("--human-readable", "--humanize", "-H"), "--human"),
    **dict.fromkeys(
        ("--perms", "-p", "--owner", "-o", "--group", "-g", "--preserve-posix"), "--preserve mode,owner,time"
    ),
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
_NOT_NEEDED = "leave it out: it is not needed"
_CONTENT = "objects are stored as they are; --compress auto compresses between gateways"
_SECRETS = "credentials are never arguments: docs/reference/credentials.md lists where they come from"
_RETRIES = "leave it out: failed requests are repeated; cp, sync and mv stop if nothing works for the time of --stall"
_RESUME = "leave it out: `tradewind jobs resume ID`, or the same command again, resumes what was interrupted"
_VERIFIED = "leave it out: copies are always verified; `tradewind check` compares two trees"
_CERTIFICATE = "name the CA of the server with a --ca-bundle option"
_PROFILE = "a profile of the cloud's own configuration is --src-profile NAME or --dst-profile NAME"
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
    *("--encrypt-rsa-key", "--exclude-if-present", "--include-regex", "--exclude-regex", "--ignore-case"),
    *("--link-dest", "--hard-links", "--fuzzy", "--chmod", "--chown", "--relative", "--parents", "--backup"),
    *("--ignore-non-existing", "--one-file-system", "--modify-window", "--stop-after", "--stop-at", "--order-by"),
    *("--header", "--custom-header", "--additional-headers", "--user-agent", "--client-cert", "--if-match"),
    *("--watch", "--zip", "--rewind", "--sparse", "--start-time", "--end-time", "--cutoff-mode", "--from0"),
)
#: Options that need none of ours, or that have no counterpart.
NEEDLESS = {
    **dict.fromkeys(("--no-progress", "--progress", "--only-show-errors", "--stats"), _PROGRESS),
    **dict.fromkeys(("--show-progress", "--progress-frequency", "--progress-multiline", "--stats-one-line"), _PROGRESS),
    # In gsutil -P keeps attributes, and -L names a log.
    "-P": f"{_PROGRESS}; --preserve mode,owner,time keeps these attributes of files",
    "-L": "write --follow-symlinks to follow links, or --report FILE for a line about each object",
    "--exact-timestamps": (
        "--compare time copies again where the copy is older than its source, or between directories, of another time"
    ),
    **dict.fromkeys(("--acl", "--grants", "--preserve-permissions"), _ACCESS),
    **dict.fromkeys(("--s3-acl", "--predefined-acl", "--preserve-acl"), _ACCESS),
    **dict.fromkeys((*_KEY_OPTIONS, "--encrypt"), _ENCRYPTION),
    **dict.fromkeys(("--no-follow-symlinks", "--ignore-symlinks"), "leave it out: symbolic links are skipped"),
    **dict.fromkeys(("--times", "-t", "--preserve-last-modified-time"), "leave it out: the times of files are kept"),
    **dict.fromkeys(("-z", "-Z", "-J", "--gzip-in-flight", "--gzip-local", "--decompress"), _CONTENT),
    **dict.fromkeys(("--do-not-decompress",), _CONTENT),
    **dict.fromkeys(("--access-key", "--access-key-id", "--s3-access-key-id", "--secret-key"), _SECRETS),
    **dict.fromkeys(("--secret-access-key", "--s3-secret-access-key", "--session-token", "--password"), _SECRETS),
    **dict.fromkeys(("--credentials-file", "--token"), _SECRETS),
    **dict.fromkeys(("--aws-profile", "--s3-profile"), _PROFILE),
    **dict.fromkeys(("--retries", "--low-level-retries", "--retries-sleep", "--retry", "--retry-count"), _RETRIES),
    **dict.fromkeys(("--timeout", "--contimeout", "--cli-read-timeout", "--cli-connect-timeout"), _RETRIES),
    **dict.fromkeys(
        ("--resume", "--continue", "--partial", "--append", "--checkpoint", "--enable-checkpoint"), _RESUME
    ),
    **dict.fromkeys(("--checksum-algorithm", "--checksum-mode", "--ignore-checksum", "--md5"), _VERIFIED),
    **dict.fromkeys(("--append-verify", "--check-length", "--content-md5", "--s3-disable-checksum"), _VERIFIED),
    **dict.fromkeys(
        ("--tpslimit", "--tpslimit-burst"),
        "--concurrency N limits the requests in flight, and --limit-rate RATE the bytes per second",
    ),
    **dict.fromkeys(("--filter",), "write --include GLOB in place of '+ GLOB', --exclude GLOB in place of '- GLOB'"),
    **dict.fromkeys(("--interactive", "-i"), "--dry-run shows what would be done; deletions of many objects ask first"),
    **dict.fromkeys(
        ("--force-glacier-transfer", "--ignore-glacier-warnings"),
        "leave it out: restored objects are copied, and archived ones fail by name",
    ),
    **dict.fromkeys(("--use-ssl", "--no-ssl", "--no-https"), "leave it out: the scheme of the endpoint decides"),
    "-c": "write --concurrency N; `tradewind sync --compare checksum` compares checksums",
    "--install-completion": "`tradewind completion bash` prints the script of a shell",
    "--version": "write `tradewind --version`",
    **dict.fromkeys(("--summarize",), "`tradewind du URL` counts objects and sums sizes"),
    **dict.fromkeys(("--no-verify-ssl", "--no-check-certificate", "--insecure"), _CERTIFICATE),
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
        _NOT_NEEDED,
    ),
    **dict.fromkeys(("--create-empty-src-dirs", "--fast-list", "--no-traverse", "--check-first"), _NOT_NEEDED),
    **dict.fromkeys(("--no-paginate", "--no-cli-pager", "--cli-binary-format", "--color", "--no-color"), _NOT_NEEDED),
    **dict.fromkeys(("--buffer-size", "--max-backlog", "--use-mmap", "--inplace", "--whole-file", "-W"), _NOT_NEEDED),
    **dict.fromkeys(("--s3-provider", "--s3-env-auth", "--s3-no-check-bucket", "--s3-upload-cutoff"), _NOT_NEEDED),
    **dict.fromkeys(("--continue-on-error", "--skip-errors", "--mkpath", "--use-list-objects-v1"), _NOT_NEEDED),
    **dict.fromkeys(("--max-depth", "--depth"), "use a pattern: 'DIR/*' matches what is in one directory"),
    **dict.fromkeys(("--check-all", "--check-new"), "copies are always verified; `tradewind check` compares two trees"),
    **dict.fromkeys(("--delete-src", "--delete-source", "--remove-source-files"), "use `tradewind mv -r`"),
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
    if option in ("--all-versions", "--versions") and "--versions" not in known:
        return _VERSIONS
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
