"""Start a program that cannot give files the set-user-id or set-group-id bit.

A gateway run by root restores the modes of files if its peer says so. The peers of a job with a guest belong to
different people, and a file with these bits would run as root. The kernel refuses the bits here, by a seccomp filter.
Other users need no filter: their gateways never set these bits.

Run as a script, this file installs the filter and becomes the program of its arguments.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

__all__ = ["without_setuid"]

SETUID_BITS = 0o6000
#: System calls that set modes, with the number of the argument, and the audit number of each processor's calls.
CALLS = {
    "x86_64": (0xC000003E, {90: 1, 91: 1, 268: 2, 452: 2}),
    "aarch64": (0xC00000B7, {52: 1, 53: 2, 452: 2}),
}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
"""Results of a filter: allow the call, refuse it with EPERM, end the process."""
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
"""Instructions of a filter: load a word, compare it, test its bits, return."""
X32_CALLS = 0x40000000
"""First number of the calls of another interface of x86-64, which reaches the same functions."""


def without_setuid() -> tuple[str, ...]:
    """Return the words in front of a command that keep it from setting these bits; none for other users than root."""
    return (sys.executable, "-I", __file__) if os.geteuid() == 0 else ()


def _filter(processor: str) -> bytes:
    """Return the instructions of the filter. Raises KeyError for a processor whose calls are not known."""
    audit, calls = CALLS[processor]
    number, architecture, arguments = 0, 4, 16
    words = [(LOAD, 0, 0, architecture), (EQUAL, 1, 0, audit), (RETURN, 0, 0, KILL)]
    words += [(LOAD, 0, 0, number), (AT_LEAST, 0, 1, X32_CALLS), (RETURN, 0, 0, KILL)]
    for call, argument in calls.items():
        # The mode is in the lower half of the argument.
        words += [(LOAD, 0, 0, number), (EQUAL, 0, 3, call), (LOAD, 0, 0, arguments + 8 * argument)]
        words += [(ANY_BIT, 0, 1, SETUID_BITS), (RETURN, 0, 0, REFUSE)]
    words.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *word) for word in words)


def _install() -> None:
    """Install the filter in this process and its children. Raises OSError."""
    instructions = _filter(platform.machine())
    code = ctypes.create_string_buffer(instructions)
    program = struct.pack("@HP", len(instructions) // 8, ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, MODE_FILTER, program, 0, 0)):
        if library.prctl(*(word if isinstance(word, bytes) else ctypes.c_ulong(word) for word in words)) != 0:
            raise OSError(ctypes.get_errno(), "the kernel does not accept a filter of system calls")


if __name__ == "__main__":
    try:
        _install()
        os.execv(sys.argv[1], sys.argv[1:])
    except (OSError, KeyError) as error:
        sys.exit(f"root cannot run a gateway of a job with a guest here: {error}")
