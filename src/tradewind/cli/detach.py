"""`--detach`: the command returns as soon as its job runs, and a background process stays with the job until its end.

The background process is the command itself, forked into its own session. It renews the leases of the job's machines
and ends them, as in the foreground. Until the job runs, it can ask questions and report errors on the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tradewind.model.records import dataclass

__all__ = ["OUTPUT_FILE", "DetachedProcess", "detach"]

#: Name of the file in the job's folder that gets the background process's output.
OUTPUT_FILE = "output.log"
#: Maximum length of a job's id.
ID_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class DetachedProcess:
    """The background process, which stays with the job."""

    line: int
    """A pipe to the foreground process, which waits."""

    def leave(self, job_id: str, folder: str) -> None:
        """Release the terminal once the job runs, and notify the foreground process. Raises OSError."""
        sys.stdout.flush()
        sys.stderr.flush()
        output = os.open(Path(folder) / OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for opened, streams in ((nowhere, (0,)), (output, (1, 2))):
            for stream in streams:
                os.dup2(opened, stream)
            os.close(opened)
        with suppress(BrokenPipeError):  # The foreground process was killed. The job continues.
            os.write(self.line, job_id.encode())
        os.close(self.line)


def detach(*, say: bool, as_json: bool) -> DetachedProcess | int:
    """Fork. Return a DetachedProcess in the child; in the parent, wait until the job runs or has ended, and return the
    exit code.

    The parent prints the job's id to standard output, unless `as_json`, where the event `started` has it. With `say` it
    also prints how to follow and cancel the job. Call this before anything is started. Raises KeyboardInterrupt after
    stopping the child.
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
