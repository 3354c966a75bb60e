"""Make ``.venv`` and install a set of packages into it, each file as ``locks/`` names it by its SHA-256.

Runs before anything is installed, so it uses the standard library only. ``./inv`` calls it for the core
set; `core.environment` calls it again, in the environment, for the others. Safe to interrupt (a set's stamp
is written last) and to run twice at once (a lock beside the environment).

    python3 -S core/start.py --bootstrap SET VENV
"""

from __future__ import annotations

import collections
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
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
LABELS = {
    "core": "Slipway's own packages (seconds)",
    "export": "the exporter: torch, executorch, torchao (about 250 MB, a minute or two)",
    "onnx": "the ONNX exporter and its runtime (about 60 MB)",
    "labgrid": "labgrid, for the devices of a lab (about 20 MB)",
    "debian": "the reader of Debian's archive (about 3 MB)",
    "test": "the test tools",
    "lock": "uv, which makes the locks (about 25 MB)",
    "nets": "packages with nets to measure engines with (about 50 MB)",
    "docs": "what builds the documentation (about 20 MB)",
    "coreml": "what exports for Core ML need (about 30 MB)",
    "openvino": "what exports for OpenVINO need (about 60 MB)",
    "arm": "what exports for Ethos-U and VGF need (about 70 MB)",
    "server": "Conan's server, for tests (about 1 MB)",
    "adb": "the client of adb (about 7 MB)",
}
"""The sets: extras of the project in pyproject.toml.

Those from ``nets`` on go into folders of their own (`install_apart`), all others into one environment.
"""
_OF_ANOTHER = {"adb": {"Linux": "manylinux1_x86_64", "Darwin": "macosx_10_9_x86_64"}}
"""Sets whose wheels are named for x86-64, and used on 64-bit Arm: adbutils is Python, and its adb for macOS
runs on both."""
_REFUSED = re.compile(
    r"DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.*?\n    (\S+)(?: from ([^\s(]+))?.*?Got\s+([0-9a-f]{64})",
    re.DOTALL,
)
_SAID, _LINE = 2000, 1 << 16  # lines of pip's output kept in memory, and characters of one: its log has all
_TICK = 0.3  # seconds between two looks at what pip has fetched
_LEAST_FREE = 32 << 20  # bytes; an environment does not fit into less
EXIT_HOST = 4  # core.errors.HostError; not imported, since this file must run alone


class SetupError(Exception):
    """What happened, the likely cause and what to try, in lines."""


def fail(what: str, cause: str, hint: str) -> NoReturn:
    """Raise a `SetupError` in the project's three-part form."""
    raise SetupError(f"{what}\nCause: {cause}\nTry: {hint}")


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
        what, why = (
            "Slipway does not run on Macs with Intel processors.",
            "PyTorch and cryptography no longer support them",
        )
        return what, why, "SLIPWAY_PYTHON=/path/to/an/arm64/python3 on a Mac with Apple's processor; else Linux"
    return None


def lock_file(name: str) -> Path:
    """The lock of a set: its pins and, by SHA-256, every file that may be installed for them (see core/lock.py)."""
    return ROOT / "locks" / f"{name}.txt"


def locked(text: str) -> dict[str, str]:
    """A lock's lines by package: a package has several pins when they depend on the version of Python."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line[0].isspace():
            name = line.partition("==")[0]
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


def missing(venv: Path, name: str) -> dict[str, str]:
    """The part of a set's lock that the environment still lacks, by package; removes every stamp that this invalidates.

    A package counts as present only when a stamp says that these same files of it were installed.
    """
    pins = locked(lock_file(name).read_text(encoding="utf-8"))
    present: set[str] = set()
    for other in LABELS:
        file = stamp(venv, other)
        kept = locked(file.read_text(encoding="utf-8")) if file.is_file() else {}
        present |= {package for package, lines in pins.items() if kept.get(package) == lines}
        if other == name or any(package in pins and pins[package] != lines for package, lines in kept.items()):
            file.unlink(missing_ok=True)
    return {package: lines for package, lines in pins.items() if package not in present}


def _lock(venv: Path) -> None:
    """Take turns with other ./inv of this checkout until this process ends, or the one that replaces it."""
    import fcntl

    venv.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(venv.parent / ".inv.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another ./inv is setting up this checkout; waiting for it.")
        fcntl.flock(handle, fcntl.LOCK_EX)
    os.set_inheritable(handle, True)


def say(line: str, end: str = "\n") -> None:
    """One line on stderr."""
    sys.stderr.write(line + end)
    sys.stderr.flush()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _pip_from_debian(venv: Path) -> list[str]:
    """Pip for a Debian Python without ensurepip (python3-venv is missing): Debian's own pip wheel, unpacked.

    Returns the command that installs this wheel into ``venv``, from the file that apt has verified. It needs no root:
    where the system has no lists of packages, as a fresh image, or old ones, apt reads them into a folder here.
    """
    hint = "apt install python3-venv (as root), or SLIPWAY_PYTHON=/path/to/another/python3; then the same command again"
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        fail("This Python cannot make virtual environments.", "its ensurepip module is missing", hint)
    folder = venv / ".slipway" / "pip"
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    own = [*apt, "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]
    trouble = ""
    for words in ([*apt, "download"], [*own, "update"], [*own, "download"]):
        what = ["python3-pip-whl"] if words[-1] == "download" else []
        got = subprocess.run([*words, *what], cwd=folder, capture_output=True, text=True, check=False)
        trouble = got.stderr if got.returncode else trouble
        files = sorted(folder.glob("*.deb"))
        if files:
            break
    else:
        fail(
            "This Python cannot make virtual environments.",
            f"its ensurepip module is missing, and apt-get download python3-pip-whl failed: {_last(trouble)}",
            hint,
        )
    subprocess.run(["dpkg-deb", "-x", str(files[0]), str(folder)], check=True, capture_output=True)
    wheels = sorted(folder.glob("usr/share/python-wheels/pip-*.whl"))
    if not wheels:
        fail("This Python cannot make virtual environments.", "Debian's pip package holds no wheel", hint)
    shutil.rmtree(folder / "lists", ignore_errors=True)
    install = ["install", "--no-index", "--no-deps", "--no-input", str(wheels[0])]
    return [str(venv / "bin" / "python"), str(wheels[0] / "pip"), *install]


def _make_venv(venv: Path) -> None:
    """A new environment with pip in it; an unfinished one is replaced."""
    if (venv / "bin" / "python").exists() or venv.exists():
        shutil.rmtree(venv)
    made = subprocess.run([sys.executable, "-I", "-m", "venv", str(venv)], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        return
    trouble = made.stdout + made.stderr
    _explain_disk(trouble, venv)
    shutil.rmtree(venv, ignore_errors=True)
    bare = subprocess.run(
        [sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)], capture_output=True, text=True, check=False
    )
    if bare.returncode:
        _explain_disk(bare.stdout + bare.stderr, venv)
        fail(f"Could not make the environment {venv}.", _last(bare.stderr or bare.stdout), "apt install python3-venv")
    _pip(venv, _pip_from_debian(venv), "pip itself", 1)


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip() and "WARNING" not in line]
    return "\n".join(lines[-4:])


def _explain_disk(text: str, path: Path) -> None:
    """Raise `SetupError` if the disk was full; ensurepip hides the reason, so look at the free space too."""
    folder = next(parent for parent in (path, *path.parents) if parent.exists())
    if (
        re.search(r"No space left on device|Errno 28|Disk quota exceeded", text)
        or shutil.disk_usage(folder).free < _LEAST_FREE
    ):
        fail(
            f"No space left on this machine while setting up {path}.",
            "the disk, your quota or the folder for temporary files is full",
            "free some space (TMPDIR can name another folder for temporary files), then the same command again",
        )


def _explain_pip(text: str, log: Path) -> NoReturn:
    _explain_disk(text, log)
    if refused := _REFUSED.search(text):
        source = f", from {refused[2]}," if refused[2] else ""
        fail(
            f"{refused[1]} was not installed: the file that pip got{source} is not in Slipway's lock.",
            f"the index, mirror or folder that it came from serves other bytes (SHA-256 {refused[3]}); see {log}",
            "pip config list, which shows pip's sources; remove those you do not trust, then the same command",
        )
    retry = "the same command again once the network or your pip configuration (pip config list) works"
    if re.search(
        r"NewConnectionError|ConnectTimeout|Name or service|Network is unreachable|ProxyError|Max retries|"
        r"Temporary failure|ReadTimeout|SSLError",
        text,
    ):
        fail(
            "Could not reach the Python package index.",
            f"there is no network, or a proxy blocks it; pip's output is in {log}",
            retry,
        )
    if missing := re.search(r"No matching distribution found for (\S+)", text):
        if "+" in missing[1]:
            fail(
                f"pip found no {missing[1]}, a build that the package index does not have.",
                f"on Linux the index's own is a GPU build, which does not run here; pip's output is in {log}",
                "put that wheel (PyTorch's install page names the CPU builds; those for Python 3.11 to 3.13 are in "
                "pyproject.toml) into a folder, then PIP_FIND_LINKS=FOLDER and the same command again",
            )
        fail(
            f"The Python package index did not offer {missing[1]}.",
            f"the index lacks it, or has no wheel of it for Python {sys.version.split()[0]} here; see {log}",
            "python3.11, which every package is built for: SLIPWAY_PYTHON=python3.11",
        )
    fail("pip could not install the packages.", f"{_last(text)}\nIts whole output is in {log}.", retry)


@contextlib.contextmanager
def interrupts_later() -> Iterator[list[int]]:
    """Note a Ctrl-C that comes while the block runs, instead of raising it there: a child half started would be lost.

    Where Ctrl-C is ignored or handled by others, and outside of the main thread, which alone hears it, nothing changes.
    """
    noted: list[int] = []
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class _Line:
    """The changing line of progress: what pip does, the bytes that it has fetched, their rate, and the time.

    Args:
        label: what is installed.
        folder: pip's folder for temporary files, into which it downloads.
    """

    def __init__(self, label: str, folder: Path) -> None:
        self.doing = ""
        self._label, self._folder = label, folder
        self._begun = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> _Line:  # noqa: PYI034 - typing.Self is of Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        say("\r\x1b[K", end="")

    def _tick(self) -> None:
        most = seen = 0
        rate, looked = 0.0, self._begun
        while not self._over.wait(_TICK):
            size, now = _size(self._folder), time.monotonic()
            rate = 0.7 * rate + 0.3 * max(size - seen, 0) / (now - looked)
            seen, looked, most = size, now, max(most, size)
            at = f" at {rate / 1e6:.1f} MB/s" if rate > 3e5 else ""  # else it unpacks
            fetched = f"{most / 1e6:.1f} MB{at}  " if most > 1e5 else ""
            seconds = int(now - self._begun)
            line = f"Installing {self._label}  {fetched}{seconds // 60}:{seconds % 60:02}  {self.doing}"
            say(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="")


def _size(folder: Path) -> int:
    """Bytes of the files below ``folder``, which another program changes."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(top) / name).lstat().st_size
    return total


def _pip(venv: Path, words: list[str], label: str, total: int) -> None:
    """Run pip, show one changing line of progress, keep its output in a log."""
    with tempfile.TemporaryDirectory(prefix="slipway-pip-") as scratch, contextlib.ExitStack() as shown:
        line = _Line(label, Path(scratch))
        if sys.stderr.isatty():
            shown.enter_context(line)
        else:
            say(f"Installing {label}")
        _run_pip(venv, words, line, total, scratch)


def _run_pip(venv: Path, words: list[str], shown: _Line, total: int, scratch: str) -> None:
    log = venv / ".slipway" / "setup.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines: collections.deque[str] = collections.deque(maxlen=_SAID)
    count = 0
    env = {
        **os.environ,
        "TMPDIR": scratch,
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(["PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INPUT"], "1"),
        "PIP_CONSTRAINT": os.devnull,  # the machine's own would turn a missing wheel into a conflict of versions
    }
    child: subprocess.Popen[str] | None = None
    try:  # outside: a Ctrl-C right after the start would leave pip running
        with interrupts_later() as noted:
            child = subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=env,
                start_new_session=True,
                errors="replace",
            )
        if noted:
            raise KeyboardInterrupt
        assert child.stdout is not None  # noqa: S101 - set, because stdout is PIPE
        while line := child.stdout.readline(_LINE):
            lines.append(line)
            with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
                file.write(line)
            if line.startswith("Collecting"):
                count += 1
            what = line.strip() if count < total else "unpacking"
            shown.doing = f"{min(count, total)}/{total}  {what}"
        code = child.wait()
    finally:
        if child is not None and child.poll() is None:  # Ctrl-C: pip must not go on by itself
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child is not None and child.stdout is not None:
            child.stdout.close()
    if code:
        _explain_pip("".join(lines), log)


def install(name: str, venv: Path) -> bool:
    """Install a set unless it is there; returns whether anything was done.

    Raises:
        SetupError: no network, no space, no wheel for this Python.
    """
    if is_installed(venv, name):
        return False
    pins = lock_file(name).read_text(encoding="utf-8")
    # Name exactly these pins: pip does not check the hashes of packages that the environment already has.
    todo = missing(venv, name)
    if todo:
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
            listing = Path(folder) / "requirements.txt"
            listing.write_text("".join(todo.values()), encoding="utf-8")
            _pip(venv, [*pip_words(venv / "bin" / "python"), "-r", str(listing)], LABELS[name], len(todo))
    _write(stamp(venv, name), pins)
    return True


def install_apart(name: str, venv: Path, folder: Path) -> None:
    """Install a set into ``folder``, which is made whole or not at all, with the pip of ``venv``, which stays as it is.

    Raises:
        SetupError: no network, no space, no wheel for this Python.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as fresh:
        target = Path(fresh) / "packages"
        install_listed(lock_file(name), venv, target, LABELS[name], _OF_ANOTHER.get(name, {}).get(platform.system()))
        target.rename(folder)


def install_listed(lock: Path, venv: Path, target: Path, label: str, of: str | None = None) -> None:
    """Install what a lock lists into the folder ``target``, with the pip of ``venv``; wheels ``of`` another platform.

    Raises:
        SetupError: no network, no space, no wheel for this Python.
    """
    count = len(locked(lock.read_text(encoding="utf-8")))
    words = [*pip_words(venv / "bin" / "python"), "--target", str(target), *(["--platform", of] if of else [])]
    _pip(venv, [*words, "-r", str(lock)], label, count)


def pip_words(python: Path) -> list[str]:
    """How pip is run: only wheels (nothing is built, so no code of a package runs), only files that the lock names.

    Every set is a closure of pins, so pip has nothing to resolve: ``--no-deps`` also keeps torch from bringing
    gigabytes of GPU libraries that exporting never uses. ``-I`` keeps modules of the current folder out. Python
    compiles a module when it first imports it; all of torch's take half a minute, and most are never imported.
    """
    install = ["install", "--no-deps", "--no-input", "--force-reinstall", "--no-compile"]
    return [str(python), "-I", "-u", "-m", "pip", *install, "--require-hashes", "--only-binary=:all:"]


def main(name: str, venv: Path) -> int:
    """Make the environment if it is missing or broken, then go on inside it."""
    built_for = f"{sysconfig.get_config_var('HOST_GNU_TYPE')} {sysconfig.get_config_var('SOABI')}"
    if refused := unsupported(platform.system(), platform.machine(), built_for):
        fail(*refused)
    _lock(venv)
    ready = venv / ".slipway" / "venv.txt"
    python = venv / "bin" / "python"
    if not (ready.is_file() and python.exists()):
        _make_venv(venv)
        _write(ready, sys.version)
    # From here on the environment's own Python decides which pins apply; the lock goes along.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # Python's own start must not hear a Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ["SLIPWAY_LISTEN"] = "yes"
    words = [str(python), "-S", str(ROOT / "core" / "start.py"), "--bootstrap", "--inside", name, str(venv)]
    os.execv(python, words)  # noqa: S606 - argv, no shell


def guarded(words: list[str]) -> int:
    """`main`, or its second half in the environment; every foreseen failure prints a message."""
    try:
        if words[0] != "--inside":
            return main(words[0], Path(words[1]))
        install(words[1], Path(words[2]))
    except SetupError as error:
        say(str(error))
    except OSError as error:
        say(
            f"Could not set up {words[-1]}.\nCause: {error}\n"
            "Try: free some space or make the folder writable, then the same command again"
        )
    except KeyboardInterrupt:
        say("Interrupted; the same command again goes on from here.")
        return 130
    else:
        return 0
    return EXIT_HOST
