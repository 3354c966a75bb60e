"""Make ``.venv`` and install a set of packages into it, each file as ``locks/`` names it by its SHA-256.

Runs before anything is installed, so it uses the standard library only. ``./inv`` calls it for the core
set; `core.environment` calls it again, in the environment, for the others. Safe to interrupt (a set's stamp
is written last) and to run twice at once (a lock beside the environment).

    python3 -S core/cli/start.py --bootstrap SET VENV
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from core.environment import installer
from core.environment.installer import Installation, Size, explain_disk, installation, last_lines, pip_words, say
from core.errors import INTERRUPTED, HostError

ROOT = Path(__file__).resolve().parent.parent.parent
LABELS = {
    "core": Size("Slipway's own packages", 59, 240),
    "export": Size("the exporter, which is torch, executorch and torchao", 251, 800),
    "onnx": Size("the ONNX exporter and its runtime", 60, 200),
    "labgrid": Size("labgrid, for the devices of a lab", 20, 60),
    "debian": Size("the reader of Debian's archive", 3, 10),
    "test": Size("the test tools", 60, 150),
    "lock": Size("uv, which makes the locks", 25, 60),
    "nets": Size("packages with nets to measure engines with", 50, 200),
    "peers": Size("other runtimes to measure engines beside", 400, 1300),
    "docs": Size("what builds the documentation", 20, 60),
    "server": Size("Conan's server, for tests", 1, 5),
    "adb": Size("the client of adb", 7, 10),
    "text": Size("tokenizers of language models", 4, 10),
    "language": Size("what exports language models", 9, 40),
    "data": Size("trained weights, names of classes and photographs", 27, 60),
}
"""The sets: extras of the project in pyproject.toml.

Those from ``nets`` on go into folders of their own (`install_apart`), all others into one environment.
"""
_FIRST = (
    "The first start sets up Slipway's own environment. Exporter, compilers and emulators follow when a command first\n"
    "needs them: for the README's first deploy 0.7 GB to download and 2.7 GB on disk in all, two to four minutes."
)
OF_ANOTHER = {"adb": {"Linux": "manylinux1_x86_64", "Darwin": "macosx_10_9_x86_64"}}
"""Sets whose wheels are named for x86-64, and used on 64-bit Arm: adbutils is Python, and its adb for macOS
runs on both."""


def unsupported(system: str, machine: str, triple: str) -> tuple[str, str, str] | None:
    """What happened, why and what to try, where packages that everything needs do not exist for a Python; else None.

    ``triple`` is what the Python was built for, ``x86_64-alpine-linux-musl``; the others are ``platform``'s names.
    """
    if system == "Windows":
        what, why = "Slipway does not run on Windows itself.", "its compilers, emulators and devices need Linux"
        return what, why, "in the Windows Subsystem for Linux (wsl --install -d Debian): ./inv --list"
    if "musl" in triple:
        what = "Slipway does not run on Linux with the C library musl (Alpine)."
        return what, "PyTorch and adb have no builds for it", "in a container of Debian: ./inv --list"
    if system == "Darwin" and machine == "x86_64":
        what = "Slipway does not run on Macs with Intel processors."
        why = "PyTorch and cryptography no longer support them"
        return what, why, "SLIPWAY_PYTHON=/path/to/an/arm64/python3 on a Mac with Apple's processor; else Linux"
    return None


def lock_file(name: str) -> Path:
    """A set's lock: its pins and, by SHA-256, every file that may be installed for them (core/environment/lock.py)."""
    return ROOT / "locks" / f"{name}.txt"


def locked(text: str) -> dict[str, str]:
    """A lock's lines by package: a package has several pins when they depend on the version of Python."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line[0].isspace():
            name = re.split(r"==| @ ", line, maxsplit=1)[0]
        found[name] = found.get(name, "") + line
    return found


def stamp(venv: Path, name: str) -> Path:
    """A copy of the lock that the set was installed from; written last."""
    return venv / ".slipway" / f"{name}.lock"


def is_installed(venv: Path, name: str) -> bool:
    """Whether the set, exactly as locked now, is in the environment."""
    try:
        return stamp(venv, name).read_bytes() == lock_file(name).read_bytes()
    except FileNotFoundError:
        return False


def _same(kept: str, lines: str) -> bool:
    """Whether what was installed from a package's lines is what other lines of it install here."""
    wheel = installer.parted(lines)[1] if " @ " in lines else None
    return kept == lines or (wheel is not None and wheel.sha256 in kept)


def missing(venv: Path, name: str) -> dict[str, str]:
    """The part of a set's lock that the environment still lacks, by package; removes every stamp that this invalidates.

    A package counts as present only when a stamp says that these same files of it were installed.
    """
    pins = locked(lock_file(name).read_text(encoding="utf-8"))
    present: set[str] = set()
    for other in LABELS:
        file = stamp(venv, other)
        kept = locked(file.read_text(encoding="utf-8")) if file.is_file() else {}
        present |= {package for package, lines in pins.items() if _same(kept.get(package, ""), lines)}
        if other == name or any(package in pins and not _same(lines, pins[package]) for package, lines in kept.items()):
            file.unlink(missing_ok=True)
    return {package: lines for package, lines in pins.items() if package not in present}


@contextlib.contextmanager
def alone(venv: Path) -> Iterator[None]:
    """Take turns with other ./inv of this checkout while the block runs, also in the process that replaces this one."""
    import fcntl

    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / ".inv.lock").open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another ./inv is setting up this checkout; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.set_inheritable(handle.fileno(), True)
        yield


@contextlib.contextmanager
def disk_errors(venv: Path) -> Iterator[None]:
    """Turn what the disk refuses in the block into a `HostError`."""
    try:
        yield
    except OSError as error:
        raise HostError(
            f"Could not set up {venv}.",
            str(error),
            "free some space or make the folder writable, then the same command again",
        ) from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _pip_of_python() -> Path | None:
    """The wheel of pip that this Python brings along, if it does."""
    try:
        import ensurepip
    except ImportError:  # Debian, without python3-venv
        return None
    if ensurepip.__file__ is None:  # a folder without the module
        return None
    of_system = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [*([Path(of_system)] if of_system else []), Path(ensurepip.__file__).parent / "_bundled"]
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _pip_of_debian(folder: Path) -> Path:
    """Debian's own pip wheel, for a Debian Python without ensurepip (python3-venv is missing), unpacked in ``folder``.

    apt has verified it. It needs no root: where the system has no lists of packages, as a fresh image, or old ones,
    apt reads them into the folder.
    """
    hint = "apt install python3-venv (as root), or SLIPWAY_PYTHON=/path/to/another/python3; then the same command again"
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise HostError("This Python cannot make virtual environments.", "its ensurepip module is missing", hint)
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    own = [*apt, "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]
    trouble = ""
    for words in ([*apt, "download"], [*own, "update"], [*own, "download"]):
        what = ["python3-pip-whl"] if words[-1] == "download" else []
        got = subprocess.run([*words, *what], cwd=folder, capture_output=True, text=True, check=False)
        trouble = got.stderr if got.returncode else trouble
        if files := sorted(folder.glob("*.deb")):
            break
    else:
        raise HostError(
            "This Python cannot make virtual environments.",
            f"its ensurepip module is missing, and apt-get download python3-pip-whl failed: {last_lines(trouble)}",
            hint,
        )
    subprocess.run(["dpkg-deb", "-x", str(files[0]), str(folder)], check=True, capture_output=True)
    if not (wheels := sorted(folder.glob("usr/share/python-wheels/pip-*.whl"))):
        raise HostError("This Python cannot make virtual environments.", "Debian's pip package holds no wheel", hint)
    return wheels[0]


def _make_venv(venv: Path) -> None:
    """A new environment with pip in it; an unfinished one is replaced.

    pip's wheel is unpacked, which is all that an installation does with it: ensurepip takes five seconds more.
    """
    if venv.exists():
        shutil.rmtree(venv)
    words = [sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        explain_disk(made.stdout + made.stderr, venv)
        raise HostError(
            f"Could not make the environment {venv}.",
            last_lines(made.stderr or made.stdout),
            "apt install python3-venv",
        )
    (packages,) = venv.glob("lib/python3*/site-packages")
    with tempfile.TemporaryDirectory(prefix="slipway-pip-") as folder:
        try:
            with zipfile.ZipFile(_pip_of_python() or _pip_of_debian(Path(folder))) as wheel:
                wheel.extractall(packages)
        except OSError as error:
            explain_disk(str(error), venv)
            raise


def install(name: str, venv: Path) -> bool:
    """Install a set unless it is there; returns whether anything was done.

    Raises:
        HostError: no network, no space, no wheel for this Python.
    """
    if is_installed(venv, name):
        return False
    pins = lock_file(name).read_text(encoding="utf-8")
    # Name exactly these pins: pip does not check the hashes of packages that the environment already has.
    if todo := missing(venv, name):
        whole = LABELS[name]
        with installation(venv, whole if 2 * len(todo) > len(locked(pins)) else Size(whole.label)) as doing:
            if "pip" in todo:
                _renew_pip(todo.pop("pip"), doing)
            _install_listed("".join(todo.values()), doing)
        _trim(venv)
    _write(stamp(venv, name), pins)
    return True


def _renew_pip(lines: str, doing: Installation) -> None:
    """Install the pip of the lock first: the one that came with Python takes twice as long for the rest.

    Where no source of pip's has it, that one goes on.
    """
    try:
        _install_listed(lines, doing)
    except HostError as error:
        if "did not offer" not in str(error):
            raise


def _install_listed(lines: str, doing: Installation, *more: str) -> None:
    """Install what lines of a lock list, with further words for pip."""
    if not lines:
        return
    count = len(locked(lines))
    lines, wheel = installer.parted(lines)
    if wheel is not None:
        lines += wheel.listed(installer.fetch(wheel, doing))
    listing = doing.scratch / "requirements.txt"
    listing.write_text(lines, encoding="utf-8")
    doing.install([*pip_words(doing.python), *more, "-r", str(listing)], count)
    if wheel is not None:  # another installation's is another's, which may run beside this one
        installer.done(doing)


_SPARE = ("torch/test", "pandas/tests", "cmake/data/share/cmake-*/Help", "cmake/data/bin/cpack", "cmake/data/bin/ctest")


def _trim(venv: Path) -> None:
    """Remove what nothing here starts or reads, 200 MB: tests, PyTorch's of C++ among them, and CMake's pages."""
    for packages in venv.glob("lib/python3*/site-packages"):
        found = [path for pattern in _SPARE for path in packages.glob(pattern)]
        # The one that is left hands tensors to other processes.
        for path in [*found, *(each for each in packages.glob("torch/bin/*") if each.name != "torch_shm_manager")]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def install_apart(name: str, venv: Path, folder: Path) -> None:
    """Install a set into ``folder``, which is made whole or not at all, with the pip of ``venv``, which stays as it is.

    Raises:
        HostError: no network, no space, no wheel for this Python.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as fresh:
        target = Path(fresh) / "packages"
        install_listed(lock_file(name), venv, target, LABELS[name], OF_ANOTHER.get(name, {}).get(platform.system()))
        target.rename(folder)


def install_listed(lock: Path, venv: Path, target: Path, size: Size, of: str | None = None) -> None:
    """Install what a lock lists into the folder ``target``, with the pip of ``venv``; wheels ``of`` another platform.

    Raises:
        HostError: no network, no space, no wheel for this Python.
    """
    with installation(venv, size, target) as doing:
        more = ["--target", str(target), *(["--platform", of] if of else [])]
        _install_listed(lock.read_text(encoding="utf-8"), doing, *more)


def main(name: str, venv: Path) -> NoReturn:
    """Make the environment if it is missing or broken, then go on inside it."""
    built_for = f"{sysconfig.get_config_var('HOST_GNU_TYPE')} {sysconfig.get_config_var('SOABI')}"
    if refused := unsupported(platform.system(), platform.machine(), built_for):
        raise HostError(*refused)
    ready = venv / ".slipway" / "venv.txt"
    python = venv / "bin" / "python"
    with alone(venv):
        if not (ready.is_file() and python.exists()):
            if not venv.exists():
                say(_FIRST)
            _make_venv(venv)
            _write(ready, sys.version)
        # From here on the environment's own Python decides which pins apply; the lock goes along.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Python's own start must not hear a Ctrl-C
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.environ["SLIPWAY_LISTEN"] = "yes"
        words = [str(python), "-S", str(ROOT / "core" / "cli" / "start.py"), "--bootstrap", "--inside", name, str(venv)]
        os.execv(python, words)  # noqa: S606 - argv, no shell


def guarded(words: list[str]) -> int:
    """`main`, or its second half in the environment; every foreseen failure is printed, and its exit code returned."""
    name, venv = words[-2], Path(words[-1])
    try:
        with disk_errors(venv):
            if words[0] != "--inside":
                main(name, venv)
            install(name, venv)
    except HostError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("Interrupted; the same command again goes on from here.")
        return INTERRUPTED
    return 0
