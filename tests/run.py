"""Runs pytest with the given arguments, and then again, alone, the few tests that failed beside others.

Most tests have time limits, and `make test` runs several at once on two processors. A test that passes REPEATS times in
a row had too little of a processor, or has found a rare race. Its failure and its name are printed, so that nobody
overlooks it. More than REPEATED_MAX failures are no accident, and end the run.

    python -m tests.run ARGUMENT_OF_PYTEST...
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

#: Most failed tests that are run again, and how often each must pass.
REPEATED_MAX, REPEATS = 3, 3
#: Exit code of pytest if tests have failed, and nothing else.
FAILED = 1


def main(arguments: list[str]) -> int:
    """Run the tests and return the exit code of pytest; 0 if those that failed have passed alone."""
    with tempfile.TemporaryDirectory(prefix="tradewind-tests-") as cache:
        code = pytest(*arguments, "--override-ini", f"cache_dir={cache}")
        failed = failed_tests(Path(cache))
    if code != FAILED or not 0 < len(failed) <= REPEATED_MAX:
        return code
    print("Again, alone:", *failed, sep="\n  ", flush=True)
    code = next(filter(None, (pytest("--numprocesses", "0", *failed) for _ in range(REPEATS))), 0)
    outcome = "Failed again." if code else f"Passed alone {REPEATS} times, after a failure beside other tests:"
    print(outcome, *failed, sep="\n  ", flush=True)
    return code


def pytest(*arguments: str) -> int:
    """Run pytest in a process of its own; return its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode


def failed_tests(cache: Path) -> list[str]:
    """Return the names of the tests that failed, as pytest recorded them."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
