"""File systems on which SQLite's write-ahead log works.

Its readers and writers share memory through a file. It works between processes of one kernel, not between hosts on
a network file system. There SQLite uses a rollback journal: correct, but with more waiting.
"""

from __future__ import annotations

import os

__all__ = ["LOCAL_TYPES", "keeps_shared_memory", "type_of"]

#: File systems that only one kernel can use at a time. Any other may be a network file system.
LOCAL_TYPES = frozenset(
    {
        "bcachefs",
        "btrfs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "ubifs",
        "vfat",
        "xfs",
        "zfs",
    }
)
MOUNTS = "/proc/self/mountinfo"


def keeps_shared_memory(folder: str) -> bool:
    """Return whether the processes that open files in a folder certainly share one kernel's memory.

    False if the system does not say (other systems than Linux): the rollback journal is correct everywhere.
    """
    return type_of(folder) in LOCAL_TYPES


def type_of(folder: str, mounts: str = MOUNTS) -> str | None:
    """Return the type of the file system of a folder, `ext4` or `nfs4`; None if the system does not say."""
    path = os.path.realpath(folder)
    found: tuple[str, str] | None = None
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                mount, kind = _mount(line)
                # A later mount on the same point hides the earlier one.
                if _lies_in(path, mount) and (found is None or len(mount) >= len(found[0])):
                    found = mount, kind
    except (OSError, ValueError, IndexError):
        return None
    return None if found is None else found[1]


def _mount(line: str) -> tuple[str, str]:
    """Return the mount point and type of a line: `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/sda rw`."""
    before, _, after = line.partition(" - ")
    point = before.split(" ")[4]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point, after.split(" ")[0]


def _lies_in(path: str, mount: str) -> bool:
    return mount == "/" or path == mount or path.startswith(f"{mount}/")
