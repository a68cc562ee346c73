"""`--detach`: the command returns as soon as its job runs; a process in the background stays with the job to its end.

That process is the command itself, which continues in its own session: it keeps the machines of the job alive and
ends them, as it would have in the foreground. Until the job runs it may ask, and report errors, on the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OUTPUT_FILE", "DetachedProcess", "detach"]

#: In the job's folder: what the command prints after it was detached.
OUTPUT_FILE = "output.log"
#: A job's id is no longer than this.
ID_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class DetachedProcess:
    """This process, as the one that stays with the job."""

    line: int
    """A pipe to the process that waits."""

    def leave(self, job_id: str, folder: str) -> None:
        """Release the terminal, as the job runs, and notify the process that waits. Raises OSError."""
        sys.stdout.flush()
        sys.stderr.flush()
        output = os.open(Path(folder) / OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for opened, streams in ((nowhere, (0,)), (output, (1, 2))):
            for stream in streams:
                os.dup2(opened, stream)
            os.close(opened)
        with suppress(BrokenPipeError):  # It was killed. The job continues.
            os.write(self.line, job_id.encode())
        os.close(self.line)


def detach(*, say: bool, as_json: bool) -> DetachedProcess | int:
    """Continue as two processes. Return a DetachedProcess in the new one; in this one the exit code, once the job runs
    or has ended.

    The id goes to standard output, unless `as_json`, where the event `started` has it; `say` adds what to do with it.
    Call this before anything was started. Raises KeyboardInterrupt, with the new process stopped.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    waiting, line = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(waiting)
        os.setsid()
        return DetachedProcess(line)
    os.close(line)
    try:
        with os.fdopen(waiting, "rb") as waiter:
            job_id = waiter.read(ID_BYTES_MAX).decode()
    except KeyboardInterrupt:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
        raise
    if not job_id:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return code if code >= 0 else 128 - code
    if not as_json:
        print(job_id)
    if say:
        words = f"tradewind jobs attach {job_id}", f"tradewind jobs cancel {job_id}"
        print(f"detached: `{words[0]}` follows it, `{words[1]}` stops it for good", file=sys.stderr)
    return 0
