"""Calls in several threads, and the libraries that they load."""

import subprocess
import sys
from pathlib import Path

import pytest

from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import CallRefused

#: A sound package. While one thread imports its first module, which needs the second, another thread begins with the
#: second, which needs the first. Python notices, and lets one of them continue with a module that is not complete.
PACKAGE = {
    "__init__": "import library.first",
    "first": """
import threading
import time
from tradewind.fleet.libraries import load_libraries

other = threading.Thread(target=load_libraries, args=("library.second",))
other.start()
time.sleep(0.3)
from library.second import value
""",
    "second": "import library.third\nvalue = 1",
    "third": "import library.first",
}
LOADS = """
from tradewind.fleet.libraries import load_libraries
load_libraries("library")
from library.first import other
other.join()
"""


def test_threads_that_load_the_same_library_do_not_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "library" / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", LOADS], capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_in_one_of_several_calls_is_a_refusal() -> None:
    def call(number: int) -> int:
        if number == 1:
            raise ZeroDivisionError
        return number

    with pytest.raises(CallRefused, match="a call failed unexpectedly"):
        each_of([0, 1, 2], call)
