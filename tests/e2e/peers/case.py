"""One case: trees before, a command, trees after."""

from __future__ import annotations

from dataclasses import dataclass, field

Tree = dict[str, str]
"""Content by name. A name that ends with `/` is an empty directory, or an empty object of a store."""


@dataclass(frozen=True)
class Case:
    """One command between two places. SRC and DST in the command stand for them, LIST for a file of `listed` names."""

    name: str
    source: Tree
    before: Tree
    command: str
    after: Tree
    code: int = 0
    #: The tree that remains in the source; the whole source unless stated.
    left: Tree | None = None
    #: Names at the source that are newer than those at the destination. Without them both have one time.
    newer: tuple[str, ...] = ()
    #: Names at the source that are older.
    older: tuple[str, ...] = ()
    #: Targets of symbolic links at the source, by name.
    links: Tree = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    stdin: str | None = None
    #: The lines of standard output. DST stands for the destination.
    prints: tuple[str, ...] | None = None
    #: Number of objects that are copied.
    copies: int | None = None
    #: The case needs times, links or directories of file systems on both sides.
    files_only: bool = False
