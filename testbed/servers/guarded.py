"""Run a command that dies with its parent: ``python -I -S guarded.py PARENT_PID COMMAND…``.

This is a separate program because code between fork and exec (``preexec_fn``) may deadlock in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL at the parent's death, then become the command."""
    parent = int(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
