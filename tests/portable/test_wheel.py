"""A wheel holds the package and static programs and nothing else, and works on a machine without Rust and compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from hatch_build import CONSOLE
from portable.static import PROCESSORS, PROGRAMS, ROOT
from portable.toolchain import BuildError, emulator
from portable.wheel import CONSOLE_PAGE, build_wheel, require_console, tag_of
from testbed.foreign import INSIDE, foreign_command, foreign_root
from testbed.servers import InstallError
from tradewind._version import __version__

HERE = os.uname().machine
DIST = ROOT / "dist"
INSTALL_S, WAIT_S = 300, 120
#: A wheel has the web console, which needs npm unless it is built already.
NEEDS_CONSOLE = pytest.mark.skipif(
    shutil.which("npm") is None and not (ROOT / CONSOLE / "index.html").exists(), reason="needs npm: make console"
)
#: The demo's least volume with which a transfer lasts long enough for a relay to be killed during it.
FILES, FILE_BYTES = 20, 25_000_000
EMULATED_FILE_BYTES = 1_000_000
#: The C library of Debian 12, the oldest with all that the test needs, is version 2.36.
GLIBC_MINOR = 36
#: `vaesenc` with registers of 512 bits. A program without AES-GCM for AVX-512 has none.
AES_ROUND_OF_512_BITS = re.compile(rb"\x62[\x02-\xf2][\x05-\xfd][\x40\x48]\xdc", re.DOTALL)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder of programs of every processor that stand for the real ones."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for processor in PROCESSORS:
        for program in PROGRAMS:
            path = folder / f"{program}-{processor}"
            path.write_bytes(b"\x7fELF" + path.name.encode())
            path.chmod(0o700)
    return folder


@NEEDS_CONSOLE
@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_wheel_holds_the_package_and_the_programs_of_its_processor_alone(
    processor: str, programs: Path, tmp_path: Path
) -> None:
    wheel = build_wheel(processor, programs, tmp_path)
    platforms = f"manylinux_2_17_{processor}.musllinux_1_1_{processor}"
    assert wheel.name == f"tradewind-{__version__}-py3-none-{platforms}.whl"
    data, info = (f"tradewind-{__version__}.{kind}/" for kind in ("data", "dist-info"))
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
        for program in PROGRAMS:
            assert archive.read(f"{data}scripts/{program}") == f"\x7fELF{program}-{processor}".encode()
            assert archive.getinfo(f"{data}scripts/{program}").external_attr >> 16 & 0o777 == 0o755
        assert "tradewind = tradewind.cli.main:main" in archive.read(f"{info}entry_points.txt").decode()
        tags = re.findall(r"^Tag: (.*)$", archive.read(f"{info}WHEEL").decode(), re.MULTILINE)
    assert sorted(tags) == [f"py3-none-{platform}" for platform in platforms.split(".")]
    source = ROOT / "src"
    package = {str(path.relative_to(source)) for path in (source / "tradewind").rglob("*") if path.is_file()}
    package = {name for name in package if "__pycache__" not in name}
    others = {f"{data}scripts/{program}" for program in PROGRAMS}
    others |= {info + name for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    assert held == package | others
    assert CONSOLE_PAGE in held


def test_a_wheel_without_the_console_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "tradewind-1.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("tradewind/service/__init__.py", "")
    with pytest.raises(BuildError, match=r"tradewind-1\.whl has no web console"):
        require_console(wheel)
    assert not wheel.exists()


@NEEDS_CONSOLE
def test_equal_files_give_equal_wheels(programs: Path, tmp_path: Path) -> None:
    first = build_wheel(HERE, programs, tmp_path / "first").read_bytes()
    for path in programs.iterdir():
        os.utime(path, (0, 0))
    assert build_wheel(HERE, programs, tmp_path / "again").read_bytes() == first


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_not_say_where_it_was_built(program: str, processor: str) -> None:
    content = _built(processor)[PROGRAMS.index(program)].read_bytes()
    assert b"/rustls-0." in content or program != "tradewind-gateway", "panics name source files"
    for folder in (Path.home(), ROOT):
        named = re.search(re.escape(f"{folder}/".encode()) + rb"[\w./+-]*", content)
        assert named is None, f"the program names {named[0].decode()}"


@pytest.mark.slow
def test_a_program_seals_with_avx_512_where_the_processor_has_it() -> None:
    content = _built("x86_64")[PROGRAMS.index("tradewind-gateway")].read_bytes()
    assert len(AES_ROUND_OF_512_BITS.findall(content)) > 1_000


@NEEDS_CONSOLE
@pytest.mark.slow
def test_a_machine_without_rust_and_compiler_installs_copies_and_survives_the_death_of_a_relay(tmp_path: Path) -> None:
    _built(HERE)
    wheel = build_wheel(HERE, DIST, tmp_path)
    assert tag_of(HERE) in wheel.name
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    # Python's variables and the path would lead to this environment's package and programs.
    removed = ("PYTHONPATH", "TRADEWIND_GATEWAY", "TRADEWIND_WAN", "TRADEWIND_PROGRAMS")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= {"PATH": str(folder / "bin"), "TMPDIR": str(tmp_path)}

    def run(program: str, *words: str | Path, seconds: int = WAIT_S) -> str:
        command = [folder / "bin" / program, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run("pip", "install", "--quiet", "--only-binary", ":all:", wheel, seconds=INSTALL_S)
    environment["HOME"] = str(tmp_path)
    assert run("tradewind", "--version").split()[:2] == ["tradewind", __version__]
    for program in PROGRAMS:
        assert program in run(program, "--version")
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(FILES):
        (tree / str(number)).write_bytes(os.urandom(FILE_BYTES))
    shown = run("tradewind", "cp", "-r", tree, tmp_path / "copy", "--verify", "read")
    assert f"moved   {FILES} objects" in shown
    assert f"proven  {FILES}" in shown
    assert (tmp_path / "copy" / "7").read_bytes() == (tree / "7").read_bytes()
    shown = run("tradewind", "demo", "--local", "--tree", tree, "--size", f"{FILES * FILE_BYTES // 10**6}MB")
    assert "is killed. The other route takes over" in shown
    assert "files are identical, and there is no extra file" in shown


@pytest.mark.slow
@pytest.mark.parametrize("processor", [processor for processor in PROCESSORS if processor != HERE])
def test_the_wheel_of_another_processor_installs_plans_and_copies_under_emulation(
    processor: str, tmp_path: Path
) -> None:
    """Python, pip, NumPy, HiGHS and both programs are those of the other processor."""
    _built(processor)
    try:
        qemu, root = emulator(processor), foreign_root(processor)
    except (BuildError, InstallError) as error:
        pytest.skip(str(error))
    (python,) = (path.name for path in (root / "usr" / "bin").glob("python3.?*") if path.name[8:].isdigit())
    environment = {"PATH": f"{os.defpath}:/usr/sbin", "HOME": INSIDE, "TMPDIR": INSIDE}

    def run(program: str, *words: str, seconds: int = WAIT_S) -> str:
        command = foreign_command(processor, qemu, tmp_path, [program, *words])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
        if "mount: " in done.stderr or "unshare: " in done.stderr:
            pytest.skip(f"no emulation here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert run(python, "-c", "import os; print(os.uname().machine)").strip() == processor
    wheel = build_wheel(processor, DIST, tmp_path)
    _download_dependencies(processor, python.removeprefix("python"), tmp_path)
    run(python, "-m", "venv", "--without-pip", f"{INSIDE}/venv")
    # Debian's pip as it is, and nothing compiled beforehand: each takes a minute under emulation.
    (pip,) = (root / "usr" / "share" / "python-wheels").glob("pip-*.whl")
    environment["PYTHONPATH"] = f"/{pip.relative_to(root)}"
    words = ("install", "--quiet", "--no-compile", "--no-index", "--find-links", INSIDE, f"{INSIDE}/{wheel.name}")
    run(f"{INSIDE}/venv/bin/python", "-m", "pip", *words, seconds=INSTALL_S)
    del environment["PYTHONPATH"]
    for program in ("tradewind", *PROGRAMS):
        assert program in run(f"{INSIDE}/venv/bin/{program}", "--version")
    shown = run(f"{INSIDE}/venv/bin/tradewind", "plan", "aws:us-east-1", "gcp:us-west4", "--volume", "1TB")
    assert "aws:us-east-1" in shown
    (tmp_path / "tree").mkdir()
    for number in range(FILES):
        (tmp_path / "tree" / str(number)).write_bytes(os.urandom(EMULATED_FILE_BYTES))
    shown = run(f"{INSIDE}/venv/bin/tradewind", "cp", "-r", f"{INSIDE}/tree", f"{INSIDE}/copy", "--verify", "read")
    assert f"proven  {FILES}" in shown
    assert (tmp_path / "copy" / "7").read_bytes() == (tmp_path / "tree" / "7").read_bytes()


def _download_dependencies(processor: str, version: str, folder: Path) -> None:
    """Download the wheels of tradewind's dependencies for Python `version`, as pip would on that machine."""
    names = re.findall(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    platforms = [f"--platform=manylinux_2_{minor}_{processor}" for minor in range(17, GLIBC_MINOR + 1)]
    words = ["download", "--quiet", "--only-binary=:all:", f"--python-version={version}", *platforms]
    pip = [sys.executable, "-m", "pip", *words, f"--dest={folder}", *re.findall(r'"(.*?)"', names)]
    subprocess.run(pip, check=True, timeout=INSTALL_S)


def _built(processor: str) -> list[Path]:
    """Return the static programs for a processor. Skips the test if one was not built."""
    paths = [DIST / f"{program}-{processor}" for program in PROGRAMS]
    for path in paths:
        if not path.exists():
            pytest.skip(f"dist/{path.name} is missing; run make static STATIC={processor}")
    return paths
