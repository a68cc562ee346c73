"""A transfer as requested, after the command line has been resolved. Mirrors `crates/contract/src/job.rs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from tradewind.errors import UsageError
from tradewind.model.document import Document
from tradewind.model.records import dataclass, field
from tradewind.model.store import StoreSpec

#: `existing` counts each object that exists at the destination as the same: nothing is replaced.
Comparison = Literal["auto", "checksum", "size", "time", "existing"]
VerifyMode = Literal["auto", "read"]
AttributeDirective = Literal["keep", "replace"]
SourceTags = Literal["auto", "keep", "drop"]
RetentionMode = Literal["governance", "compliance"]

#: Default chunk and part size.
DEFAULT_CHUNK_BYTES = 16 << 20
#: Minimum chunk size for S3, which refuses smaller parts.
MIN_CHUNK_BYTES = 5 << 20
#: Minimum chunk size between files; gateways refuse smaller ones.
MIN_FILE_CHUNK_BYTES = 64 << 10
#: Largest chunk that gateways accept.
MAX_CHUNK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Some bytes of an object: from `start` (counted from the end if negative), `bytes` of them or all to the end."""

    start: int
    bytes: int | None = None


@dataclass(frozen=True)
class FilterRule:
    """One `--include` or `--exclude` rule: a glob as in `.gitignore`, matched with the relative name.

    Without `/` it matches a name in any folder, with `/` a path from the top. A matched folder stands for everything
    below it; a trailing `/` matches folders only. `*` and `?` stay within a folder, `**` between slashes crosses
    folders. An include is a pattern with `!`. Raises UsageError for an empty glob.
    """

    rule: Literal["include", "exclude"]
    glob: str

    def __post_init__(self) -> None:
        # `rm -r d --include "$UNSET"` must not match everything, nor may `--exclude "$UNSET/"` exclude nothing.
        if not self.glob.strip().strip("/"):
            raise UsageError(
                f"an empty rule: --{self.rule} {self.glob!r}",
                hint="is a shell variable unset? A name of blanks is written [ ]",
            )


@dataclass(frozen=True)
class NameGlob:
    """The wildcards of a place as typed, such as `2024-*/x` in `s3://b/2024-*/x`; they match the whole relative name.

    `*`, `?` and `[…]` match within a folder, `**` across. A final `/` matches folders only. With `below`, everything
    below a folder that matches is selected, too.
    """

    glob: str
    below: bool

    @property
    def is_level(self) -> bool:
        """True if no name with a `/` is selected."""
        return not self.below and "/" not in self.glob and "**" not in self.glob


@dataclass(frozen=True)
class ObjectFilter:
    """Selects objects of a prefix: only those `within` the wildcards of the place, if it has any.

    The last matching rule decides, as in `.gitignore`: first for each folder from the top, then for the object. Nothing
    below an excluded folder is selected. An object that matches no rule is selected unless the first rule is an
    include, or excludes `*`. With `includes_unmatched` it always is, as in git.
    """

    rules: tuple[FilterRule, ...] = ()
    size_min_bytes: int | None = None
    size_max_bytes: int | None = None
    newer_than_unix_ms: int | None = None
    older_than_unix_ms: int | None = None
    within: NameGlob | None = None
    includes_unmatched: bool = False


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """One object."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "object")
    key: str


@dataclass(frozen=True, slots=True)
class PrefixSelection:
    """All keys that begin with `prefix` (empty, or ending in `/`)."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "prefix")
    prefix: str
    filter: ObjectFilter = field(default_factory=ObjectFilter)


@dataclass(frozen=True, slots=True)
class ListSelection:
    """The keys in `list_file`, one per line, relative to `prefix`."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "list")
    prefix: str
    list_file: str
    filter: ObjectFilter = field(default_factory=ObjectFilter)


@dataclass(frozen=True, slots=True)
class Member:
    """One source of several: an object, or all below `key` if it ends in `/`. `name` is its name at the destination."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class SeveralSelection:
    """Several objects and prefixes of one store, each under a name of its own."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "several")
    members: tuple[Member, ...]
    filter: ObjectFilter = field(default_factory=ObjectFilter)


Selection = ObjectSelection | PrefixSelection | ListSelection | SeveralSelection


@dataclass(frozen=True, slots=True)
class Target:
    """One destination. `key` is the full key for a single object, otherwise the prefix of each relative name."""

    store: StoreSpec
    key: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """Limits of `--delete`: with more than `keys_max` objects to delete, nothing is deleted.

    Without `over_half`, nothing is deleted either if that is more than half of a destination. With `ask` nothing is
    deleted yet: the job ends with `Summary.to_delete`, and is resumed without `ask` after a confirmation.
    """

    keys_max: int | None = None
    over_half: bool = False
    ask: bool = False


@dataclass(frozen=True, slots=True)
class AttributeRules:
    """Attributes to write with each object. Files have none.

    With `keep`, the source's attributes are kept, except those that are set here; with `replace`, none is. `metadata`
    is user metadata; stores compare its names without case. An object whose content type is neither set nor kept gets
    one by the extension of its name.
    """

    directive: AttributeDirective = "keep"
    content_type: str | None = None
    cache_control: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preserve:
    """The attributes that copies keep of files: new files get them, and objects have them in their metadata.

    `mode`: the permission bits; `owner`: user and group, which only root can give to files; `time`: the time of
    modification.
    """

    mode: bool = False
    owner: bool = False
    time: bool = True


@dataclass(frozen=True, slots=True)
class Retention:
    """The time for which an object is kept.

    `mode`: `governance` (users with a permission of their own may shorten it) or `compliance` (nobody may).
    """

    mode: RetentionMode
    until_unix_s: int
    """End, seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class ObjectLock:
    """Protection of new objects against deletion and replacement (S3 Object Lock).

    `retention`: None for the default of the bucket; `legal_hold`: kept until somebody removes the hold.
    """

    retention: Retention | None = None
    legal_hold: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec(Document):
    """A job in the form that the lead receives."""

    source: StoreSpec
    selection: Selection
    targets: tuple[Target, ...]
    compare: Comparison | None = None
    flatten: bool = False
    """Write each object under the last part of its name, without the directories above."""
    delete: Deletion | None = None
    delete_source: bool = False
    verify: VerifyMode = "auto"
    allow_empty: bool = False
    server_side_copy: bool = True
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    storage_class: str | None = None
    object_lock: ObjectLock | None = None
    """Protection of the objects that are written; None for that of the bucket."""
    attributes: AttributeRules = field(default_factory=AttributeRules)
    tags: Mapping[str, str] = field(default_factory=dict)
    source_tags: SourceTags = "auto"
    """Treatment of the source's tags: `auto` keeps them where both stores can, and counts those that are dropped."""
    preserve: Preserve = field(default_factory=Preserve)
    """The attributes that copies keep of files."""
    compress: bool = False
    codec: str = "auto"
    """With `compress`: `auto`, `lz4`, `zstd` or `zstd:LEVEL`."""
    deduplicate: bool = False
    """Bytes that the receiving gateway has from this run are not sent again."""
    ceiling_usd_per_gb: float | None = None
    ceiling_usd: float | None = None
    ceiling_bytes: int | None = None
    rate_limit_bytes_per_s: int | None = None
    stall_s: int = 60
    duplicate_fraction_max: float = 0.02
    dry_run: bool = False
    state_dir: str | None = None
    report_file: str | None = None
    resume: bool = False


def lowest_limit(*limits_bytes_per_s: int | None) -> int | None:
    """Return the lowest of some maximum rates, each None without a limit [bytes/s]; None if there is none."""
    return min((limit for limit in limits_bytes_per_s if limit is not None), default=None)
