"""Run `tradewind-gateway task`: work that needs no gateways and no journal (ls, du, rm, cat, check, …)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tradewind.errors import GatewayError, SourceNotFound, TradewindError, Unauthorised, Unavailable, UsageError
from tradewind.gateway.binary import client_contract, not_started

#: The error of a task's exit code.
TASK_ERRORS: dict[int, type[TradewindError]] = {
    error.exit_code: error for error in (UsageError, SourceNotFound, Unavailable, Unauthorised)
}
#: Environment of a child, None for that of this process, and descriptors that it inherits.
Surroundings = tuple["Mapping[str, str] | None", tuple[int, ...]]
HERE: Surroundings = (None, ())


def become_task(binary: str, task: dict[str, Any], *, mute: bool = False, quiet: bool = False) -> NoReturn:
    """Replace this process by the task, so that the user gets its output and exit code and can send it signals.

    The task is passed in an anonymous file, so that standard input stays free for data. With `mute` its standard output
    is discarded, and with `quiet` its messages other than errors. Raises GatewayError.
    """
    descriptor = _task_file(task)
    if mute:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.set_inheritable(descriptor, True)
    try:
        os.execv(binary, _words(binary, descriptor, quiet=quiet))
    except OSError as error:
        raise not_started(binary, error) from error


def run_task(
    binary: str, task: dict[str, Any], around: Surroundings = HERE, *, mute: bool = False, quiet: bool = False
) -> int:
    """Run the task as a child with the standard streams of this process; return its exit code. Raises GatewayError.

    With `mute` its standard output is discarded, and with `quiet` its messages other than errors.
    """
    return _run(binary, task, around, quiet=quiet, stdout=subprocess.DEVNULL if mute else None).returncode


def try_task(binary: str, task: dict[str, Any]) -> None:
    """Run a task and discard its output.

    Raises:
        UsageError: the program refused the task as invalid. The message is the program's.
        GatewayError: the task failed in another way.
    """
    done = _run(binary, task, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0:
        return
    raise _error(UsageError if done.returncode == UsageError.exit_code else GatewayError, task, done)


def answer_of_task(binary: str, task: dict[str, Any], around: Surroundings = HERE) -> dict[str, Any]:
    """Run a task that prints one JSON document, and return it.

    Raises the error of the task's exit code, with its message and hint; GatewayError if the program cannot be run.
    """
    done = _run(binary, task, around, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    raise _error(TASK_ERRORS.get(done.returncode, GatewayError), task, done)


def exit_code_of_task(binary: str, task: dict[str, Any], *, timeout_s: float) -> int | None:
    """Run the task as a child without its output, and return its exit code; None if it takes longer than `timeout_s`.

    Raises GatewayError if the program cannot be run.
    """
    try:
        return _run(
            binary,
            task,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def ask_task(
    binary: str, task: dict[str, Any], around: Surroundings = HERE, *, timeout_s: float | None = None
) -> list[dict[str, Any]]:
    """Run the task as a child and return the JSON documents that it prints, one per line.

    Raises GatewayError if the task fails or takes longer than `timeout_s`.
    """
    try:
        done = _run(binary, task, around, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise GatewayError(f"{binary} did not answer within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise GatewayError(f"task {task['task']} failed with exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def follow_task(binary: str, task: dict[str, Any], heed: Callable[[dict[str, Any]], None]) -> int:
    """Run the task as a child, pass each JSON document that it prints to `heed`, and return its exit code.

    Its messages go to standard error, after the last document. Raises GatewayError.
    """
    import tempfile

    descriptor = _task_file(task)
    try:
        with tempfile.TemporaryFile() as messages:
            with subprocess.Popen(
                [binary, "task", "--file", f"/dev/fd/{descriptor}"],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
            ) as process:
                assert process.stdout is not None, "a pipe was asked for"
                for line in process.stdout:
                    heed(json.loads(line))
            messages.seek(0)
            for line in messages:
                sys.stderr.write(line.decode(errors="replace"))
        return process.returncode
    except OSError as error:
        raise not_started(binary, error) from error
    finally:
        os.close(descriptor)


def _run(
    binary: str, task: dict[str, Any], around: Surroundings = HERE, *, quiet: bool = False, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the task as a child; `streams` are further arguments of `subprocess.run`.

    Raises GatewayError if the program cannot be run, TimeoutExpired.
    """
    descriptor, (environment, descriptors) = _task_file(task), around
    words = _words(binary, descriptor, quiet=quiet)
    try:
        return subprocess.run(words, pass_fds=[descriptor, *descriptors], env=environment, check=False, **streams)
    except OSError as error:
        raise not_started(binary, error) from error
    finally:
        os.close(descriptor)


def _error(
    kind: type[TradewindError], task: dict[str, Any], done: subprocess.CompletedProcess[bytes]
) -> TradewindError:
    """Return the error that a failed task has printed."""
    said = dict(line.split(": ", 1) for line in done.stderr.decode(errors="replace").splitlines() if ": " in line)
    message = said.get("error", f"task {task['task']} failed with exit code {done.returncode}")
    return kind(message, hint=said.get("hint"))


def _words(binary: str, descriptor: int, *, quiet: bool) -> list[str]:
    return [binary, "task", "--file", f"/dev/fd/{descriptor}", *(["--quiet"] if quiet else [])]


def _task_file(task: dict[str, Any]) -> int:
    body = json.dumps({**client_contract(), **task}).encode()
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tradewind-task")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    view = memoryview(body)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
