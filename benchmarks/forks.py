"""Parts of a benchmark in processes of their own, without a program to start."""

from __future__ import annotations

import os
from collections.abc import Callable


def fork(part: Callable[[], None]) -> int:
    """Run a part in a child, and return the process ID. The child ends with status 1 if the part raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            part()
            code = 0
        finally:
            os._exit(code)
    return child
