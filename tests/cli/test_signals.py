"""Signals outside of a followed job: quiet, exit 130, nothing left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.sky import unavailable

#: An import that is interrupted by a signal and raises another error, as compiled packages do.
INTERRUPTED_IMPORT = """
import os, sys
from tradewind.cli.main import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            try:
                os.kill(os.getpid(), int(sys.argv[2]))
            except KeyboardInterrupt:
                raise ImportError("a part of it could not be loaded") from None

sys.meta_path.insert(0, Finder())
sys.exit(main(["ls", "."]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", ["tradewind.cli.ls", "tradewind.cli.arguments", "tradewind.gateway.binary"])
def test_a_signal_during_an_import_is_quiet(module: str, number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, str(int(number))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


#: Prints the modules that are imported before the command can end quietly at an interrupt.
IMPORTED_BEFORE_MAIN = """
import sys
before = set(sys.modules)
from tradewind.cli.main import main
print(*sorted(sys.modules.keys() - before))
"""


def test_hardly_anything_is_imported_before_an_interrupt_is_quiet() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{IMPORTED_BEFORE_MAIN}"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {"__future__", "atexit", "gc", "tradewind", "tradewind._version", "tradewind.cli", "tradewind.cli.main"}
    assert set(done.stdout.split()) == expected


#: A command that is interrupted in code that is executed from a string.
INTERRUPTED_STRING = """
import signal, sys, time
from tradewind.cli import main
def run(words, interrupts):
    interrupts.started()
    exec("signal.raise_signal(signal.SIGINT); time.sleep(10)", {"signal": signal, "time": time})
main._run = run
if __name__ == "__main__":
    sys.exit(main.main())
"""


def test_the_exit_code_of_an_interrupt_does_not_depend_on_where_it_came(tmp_path: Path) -> None:
    """Records make their methods from strings when they are imported."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_STRING)
    done = subprocess.run([sys.executable, "-m", "interrupted", "ls"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("number", "place"),
    [(signal.SIGINT, "Routes"), (signal.SIGTERM, "Routes"), (signal.SIGHUP, "Routes"), (signal.SIGINT, "Sky")],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals, place: str) -> None:
    if place == "Sky" and (reason := unavailable()):
        pytest.skip(reason)
    tree, temporary = tmp_path / "tree", tmp_path / "temporary"
    tree.mkdir()
    temporary.mkdir()
    for index in range(4):
        (tree / str(index)).write_bytes(os.urandom(40_000_000))
    running = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli.main", "demo", "--tree", str(tree), "--size", "600MB"]
        + (["--local"] if place == "Routes" else []),
        env={**os.environ, "TMPDIR": str(temporary), "HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    with running.stderr as said:
        assert any(line.startswith(f"2. {place}") for line in said)
        assert any(temporary.iterdir())
        running.send_signal(number)
        rest = said.read()
    assert running.wait() == 130
    assert rest.splitlines()[-1] == "interrupted"
    assert not any(temporary.iterdir())
