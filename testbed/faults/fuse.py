"""A file system over another folder that fails or folds names on request, which only root can mount.

It speaks the kernel's FUSE protocol (7.31) itself, so it needs no library. Like many network file systems, it accepts
every write and reports only when the file is closed that it could not be stored.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0
LISTED_MAX = 3
REQUEST_BYTES_MAX = (1 << 20) + 4096
_WRITE_BYTES_MAX = 1 << 20
_HEADER = struct.Struct("<IIQQIIIHH")
_NODE_OF_ROOT = 1
_NOSUID_NODEV = 2 | 4
_SET_MODE, _SET_UID, _SET_GID, _SET_SIZE, _SET_MTIME, _SET_MTIME_NOW = 1, 2, 4, 8, 32, 256


class FuseError(RuntimeError):
    """This machine mounts no such file system."""


class FuseFolder:
    """The folder `path`, which shows `backing` with faults.

    - `close_error`: every close of a file that was written fails with this error, once for each file, and its bytes are
      lost
    - `folds_below`: below this folder, names that differ only in case are one
    - `trims_below`: below this folder, dots and spaces at the end of a name are left out, as by FAT and exFAT
    - `breaks_off`: a listing of this folder ends after LISTED_MAX entries, with ENOENT
    """

    def __init__(
        self,
        path: Path,
        backing: Path,
        *,
        close_error: str = "",
        folds_below: str = "",
        trims_below: str = "",
        breaks_off: str = "",
    ) -> None:
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            raise FuseError("only root can mount a file system of its own" if os.geteuid() else "no /dev/fuse")
        for folder in (path, backing):
            folder.mkdir(parents=True, exist_ok=True)
        self.path = path
        words = [sys.executable, __file__, str(path), str(backing), close_error, folds_below, trims_below, breaks_off]
        self._server = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        end = time.monotonic() + READY_TIMEOUT_S
        while not os.path.ismount(path):
            if self._server.poll() is not None or time.monotonic() > end:
                self._server.kill()
                raise FuseError("this machine mounts no FUSE file system")
            time.sleep(0.01)

    def __enter__(self) -> FuseFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmount it."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            self._server.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # A mount namespace that another process made meanwhile shows the folder, too.
            self._server.kill()
            self._server.wait()


class _Server:
    def __init__(
        self, device: int, backing: Path, close_error: str, folds_below: str, trims_below: str, breaks_off: str
    ) -> None:
        self.device = device
        self.backing = os.fsencode(backing)
        self.close_error = getattr(errno, close_error) if close_error else 0
        self.folds_below = os.fsencode(folds_below)
        self.trims_below = os.fsencode(trims_below)
        self.breaks_off = os.fsencode(breaks_off)
        self.paths = {_NODE_OF_ROOT: b""}
        self.nodes = {b"": _NODE_OF_ROOT}
        self.last_node = _NODE_OF_ROOT
        self.dirty: set[int] = set()
        self.answers: dict[int, Callable[[int, bytes], bytes]] = {
            1: self._lookup,
            3: lambda node, _: self._attributes(self._path(node)),
            4: self._set_attributes,
            9: lambda node, data: self._make(node, data[8:], lambda path: os.mkdir(path, 0o755)),
            10: lambda node, data: self._remove(node, data, os.unlink),
            11: lambda node, data: self._remove(node, data, os.rmdir),
            12: lambda node, data: self._rename(node, data[:8], data[8:], 0),
            14: lambda node, data: self._open(node, struct.unpack_from("<I", data)[0]),
            15: self._read,
            16: self._write,
            17: lambda *_: struct.pack("<QQQQQIIII24x", *[1 << 20] * 5, 4096, 255, 4096, 0),
            18: self._release,
            20: self._sync,
            25: self._flush,
            26: self._init,
            27: lambda *_: struct.pack("<QII", 0, 0, 0),
            28: self._list,
            29: lambda *_: b"",
            30: lambda *_: b"",
            35: self._create,
            45: lambda node, data: self._rename(node, data[:8], data[16:], struct.unpack_from("<I", data, 8)[0]),
        }

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, REQUEST_BYTES_MAX)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return
            _, operation, unique, node, *_ = _HEADER.unpack_from(request)
            if operation in (2, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET have no answer.
                continue
            answer, error_number = b"", 0
            try:
                if operation not in self.answers:
                    raise OSError(errno.ENOSYS, "")
                answer = self.answers[operation](node, request[_HEADER.size :])
            except OSError as error:
                error_number = error.errno or errno.EIO
            os.write(self.device, struct.pack("<IiQ", 16 + len(answer), -error_number, unique) + answer)

    def _path(self, node: int) -> bytes:
        return self.backing + b"/" + self.paths[node]

    def _child(self, node: int, name: bytes) -> bytes:
        """Return the path, below the root, of the entry that this name means."""
        above = self.paths[node]
        if self.trims_below and (above + b"/").startswith(self.trims_below + b"/"):
            name = name.rstrip(b". ") or name
        path = above + b"/" + name if above else name
        folds = self.folds_below and (above + b"/").startswith(self.folds_below + b"/")
        if folds and not os.path.lexists(self.backing + b"/" + path):
            for other in os.listdir(self._path(node)):
                if other.lower() == name.lower():
                    return above + b"/" + other
        return path

    def _entry(self, path: bytes) -> bytes:
        attributes = self._stat(self.backing + b"/" + path)
        node = self.nodes.get(path)
        if node is None:
            self.last_node += 1
            node = self.nodes[path] = self.last_node
            self.paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _stat(self, path: bytes) -> bytes:
        now = os.lstat(path)
        times = (now.st_atime_ns, now.st_mtime_ns, now.st_ctime_ns)
        seconds, fractions = [at // 10**9 for at in times], [at % 10**9 for at in times]
        numbers = (now.st_mode, now.st_nlink, now.st_uid, now.st_gid, 0, 4096, 0)
        return struct.pack("<QQQqqqIIIIIIIIII", now.st_ino, now.st_size, now.st_blocks, *seconds, *fractions, *numbers)

    def _attributes(self, path: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._stat(path)

    def _init(self, node: int, data: bytes) -> bytes:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 17, 0, 16, 12, _WRITE_BYTES_MAX, 1, 0, 0, 0)

    def _lookup(self, node: int, data: bytes) -> bytes:
        return self._entry(self._child(node, data.rstrip(b"\0")))

    def _make(self, node: int, name: bytes, make: Callable[[bytes], None]) -> bytes:
        path = self._child(node, name.rstrip(b"\0"))
        make(self.backing + b"/" + path)
        return self._entry(path)

    def _remove(self, node: int, name: bytes, remove: Callable[[bytes], None]) -> bytes:
        path = self._child(node, name.rstrip(b"\0"))
        remove(self.backing + b"/" + path)
        self._forget(path)
        return b""

    def _forget(self, path: bytes) -> None:
        """A later entry of this name is another file: the node keeps its number, and nothing opens it again."""
        self.nodes.pop(path, None)

    def _rename(self, node: int, target: bytes, names: bytes, flags: int) -> bytes:
        old, new, *_ = names.split(b"\0")
        source, end = self._child(node, old), self._child(struct.unpack("<Q", target)[0], new)
        if flags & 1 and os.path.lexists(self.backing + b"/" + end):
            raise OSError(errno.EEXIST, "")
        os.rename(self.backing + b"/" + source, self.backing + b"/" + end)
        self._forget(end)
        moved = self.nodes.pop(source, None)
        if moved is not None:
            self.nodes[end], self.paths[moved] = moved, end
        return b""

    def _open(self, node: int, flags: int) -> bytes:
        file = os.open(self._path(node), flags & (os.O_ACCMODE | os.O_TRUNC))
        return struct.pack("<QII", file, 1, 0)  # FOPEN_DIRECT_IO: nothing is cached.

    def _create(self, node: int, data: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", data)
        path = self._child(node, data[16:].rstrip(b"\0"))
        file = os.open(self.backing + b"/" + path, flags & (os.O_ACCMODE | os.O_EXCL) | os.O_CREAT, stat.S_IMODE(mode))
        return self._entry(path) + struct.pack("<QII", file, 1, 0)

    def _read(self, node: int, data: bytes) -> bytes:
        file, offset, size = struct.unpack_from("<QQI", data)
        return os.pread(file, size, offset)

    def _write(self, node: int, data: bytes) -> bytes:
        file, offset, size = struct.unpack_from("<QQI", data)
        self.dirty.add(file)
        return struct.pack("<II", os.pwrite(file, data[40 : 40 + size], offset), 0)

    def _flush(self, node: int, data: bytes) -> bytes:
        (file,) = struct.unpack_from("<Q", data)
        if self.close_error and file in self.dirty:
            self.dirty.discard(file)
            os.truncate(self._path(node), 0)
            raise OSError(self.close_error, "")
        return b""

    def _sync(self, node: int, data: bytes) -> bytes:
        self._flush(node, data)
        os.fsync(struct.unpack_from("<Q", data)[0])
        return b""

    def _release(self, node: int, data: bytes) -> bytes:
        (file,) = struct.unpack_from("<Q", data)
        self.dirty.discard(file)
        os.close(file)
        return b""

    def _list(self, node: int, data: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", data)
        answer, names = b"", sorted(os.listdir(self._path(node)))
        if self.breaks_off and self.paths[node] == self.breaks_off:
            names = names[:LISTED_MAX]
            if offset == LISTED_MAX:
                raise OSError(errno.ENOENT, "")
        for index, name in enumerate(names[offset:], offset + 1):
            now = os.lstat(self._path(node) + b"/" + name)
            entry = struct.pack("<QQII", now.st_ino, index, len(name), now.st_mode >> 12) + name
            entry += b"\0" * (-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _set_attributes(self, node: int, data: bytes) -> bytes:
        valid, _, _, size, _, _, modified, _, _, fraction, _, mode, _, uid, gid = struct.unpack_from(
            "<IIQQQqqqIIIIIII", data
        )
        path = self._path(node)
        if valid & _SET_MODE:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & (_SET_UID | _SET_GID):
            os.chown(path, uid if valid & _SET_UID else -1, gid if valid & _SET_GID else -1)
        if valid & _SET_SIZE:
            os.truncate(path, size)
        if valid & _SET_MTIME:
            at_ns = time.time_ns() if valid & _SET_MTIME_NOW else modified * 10**9 + fraction
            os.utime(path, ns=(os.lstat(path).st_atime_ns, at_ns))
        return self._attributes(path)


def main() -> None:
    """Mount and serve until the mount or our parent ends."""
    path, backing, close_error, folds_below, trims_below, breaks_off = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"folder", os.fsencode(path), b"fuse", _NOSUID_NODEV, options) != 0:
        raise SystemExit(f"mount {path}: {os.strerror(ctypes.get_errno())}")
    if os.fork() == 0:
        os.read(0, 1)
        subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
        os._exit(0)
    _Server(device, Path(backing), close_error, folds_below, trims_below, breaks_off).serve()


if __name__ == "__main__":
    main()
