"""moto's server with listings that may run beside deletions, as a program that moto's own interpreter runs.

moto looks up each key after it has copied the keys of a bucket, and answers with HTTP 500 if one has been deleted
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.s3.utils import _VersionedKeyStore
from moto.server import main


def _items(store: Any) -> Iterator[tuple[str, Any]]:
    """Return keys and latest versions as they were at one time."""
    return iter([(key, versions[-1]) for key, versions in dict(store).items()])


def _values(store: Any) -> Iterator[Any]:
    return iter([latest for _, latest in _items(store)])


def _lists(store: Any) -> Iterator[tuple[str, list[Any]]]:
    return iter(list(dict(store).items()))


if __name__ == "__main__":
    _VersionedKeyStore._iteritems = _VersionedKeyStore.items = _items
    _VersionedKeyStore._itervalues = _VersionedKeyStore.values = _values
    _VersionedKeyStore._iterlists = _VersionedKeyStore.lists = _lists
    main()
