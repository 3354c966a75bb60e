"""pip, run for us: one changing line of progress, its whole output in a log, and its failures in three lines.

Runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import collections
import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from core.console.live import Whole
from core.errors import HostError
from core.processes.commands import lines as lines_of
from core.processes.commands import process

_TICK = 0.3  # seconds between two looks at what pip has fetched
_LOOK = 1.5  # seconds between two looks at what pip has unpacked, thousands of files
_WIDTH = 20  # characters of the bar
_OF_DOWNLOAD = 0.6  # the bar's part that is the download

heard: ContextVar[Callable[[float, str], None] | None] = ContextVar("heard", default=None)
"""What hears of this thread's installations instead of the terminal: how much is done, from 0 to 1, and the words."""


@dataclass(frozen=True)
class Size:
    """What an installation takes, about."""

    label: str
    download: float = 0.0
    """MB. 0: not known."""
    disk: float = 0.0
    """MB."""

    def __str__(self) -> str:
        if not self.download:
            return self.label
        seconds = 5 + self.download / 8 + self.disk / 40  # 8 MB/s from the index, and a slow processor
        takes = f"{max(10, round(seconds, -1)):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
        return f"{self.label}: {self.download:.0f} MB to download, {self.disk:.0f} MB on disk, about {takes}"


def say(line: str, end: str = "\n") -> None:
    """One line on stderr."""
    sys.stderr.write(line + end)
    sys.stderr.flush()


class Line:
    """It is shown on a terminal while a ``with`` block runs; elsewhere one plain line says what is installed.

    Args:
        scratch: pip's folder for temporary files, into which it downloads.
        target: the folder that pip unpacks into.
    """

    def __init__(self, size: Size, scratch: Path, target: Path) -> None:
        self.doing = ""
        self.unpacking = False
        self._size, self._scratch, self._target = size, scratch, target
        self._begun = time.monotonic()
        self._whole = Whole.resumed()
        self._hear = heard.get()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Line:  # noqa: PYI034 - typing.Self is of Python 3.11
        say(f"Installing {self._size}")
        if self._hear or sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._over.set()
            self._thread.join()
            if not self._hear:
                say("\r\x1b[K", end="")

    def _tick(self) -> None:
        most = seen = unpacked = 0
        rate, looked, counted = 0.0, self._begun, 0.0
        before = _bytes_in(self._target) + _bytes_in(self._scratch)
        while not self._over.wait(_TICK):
            now = time.monotonic()
            if not self.unpacking:
                size = _bytes_in(self._scratch)
                rate = 0.7 * rate + 0.3 * max(size - seen, 0) / (now - looked)
                seen, looked, most = size, now, max(most, size)
            elif now - counted > _LOOK:
                unpacked, counted = _bytes_in(self._target) + _bytes_in(self._scratch) - before, now
            part, words = self._part(most, unpacked), self._text(most, rate)
            if self._hear:
                self._hear(part, words)
            else:
                line = f"{self._bar(part, int(now - self._begun))}  {words}"
                say(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="")

    def _text(self, fetched: int, rate: float) -> str:
        at = f" at {rate / 1e6:.1f} MB/s" if rate > 3e5 and not self.unpacking else ""
        return f"{fetched / 1e6:.0f} MB{at}  {self.doing}" if fetched > 1e5 else self.doing

    def _part(self, fetched: int, unpacked: int) -> float:
        """How far all of it is: first the download, then the rest."""
        if not self._size.download:
            return 0.0
        if self.unpacking:
            return _OF_DOWNLOAD + (1 - _OF_DOWNLOAD) * min(0.99, max(0, unpacked) / 1e6 / self._size.disk)
        return _OF_DOWNLOAD * min(1.0, fetched / 1e6 / self._size.download)

    def _bar(self, part: float, seconds: int) -> str:
        """A bar over the installation, or over the first deploy that begins with it."""
        if self._whole is None and not self._size.download:
            return f"{seconds // 60}:{seconds % 60:02}"
        said = f"{part:4.0%}  {seconds // 60}:{seconds % 60:02}"
        if self._whole is not None:
            self._whole.far("packages", part)
            part, said = self._whole.share(), str(self._whole)
        full = int(_WIDTH * part)
        return f"{'#' * full}{'.' * (_WIDTH - full)} {said}"


def _bytes_in(folder: Path) -> int:
    """Bytes of the files below ``folder``, which another program changes."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(top) / name).lstat().st_size
    return total


REFUSED = re.compile(
    r"DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.*?\n    (\S+)(?: from ([^\s(]+))?.*?Got\s+([0-9a-f]{64})",
    re.DOTALL,
)
"""What pip says of a file that no hash is of: the requirement, where the file came from, and its SHA-256."""
_SAID = 2000  # lines of pip's output kept in memory: its log has all
_LEAST_FREE = 32 << 20  # bytes; an environment does not fit into less


def pip_words(python: Path, command: str = "install") -> list[str]:
    """How pip is run: only wheels (nothing is built, so no code of a package runs), only files that the lock names.

    Every set is a closure of pins, so pip has nothing to resolve: ``--no-deps`` also keeps torch from bringing
    gigabytes of GPU libraries that exporting never uses. ``-I`` keeps modules of the current folder out. Python
    compiles a module when it first imports it; all of torch's take half a minute, and most are never imported.
    """
    more = ["--force-reinstall", "--no-compile"] if command == "install" else []
    words = [str(python), "-I", "-u", "-m", "pip", command, "--no-deps", "--no-input", *more]
    return [*words, "--require-hashes", "--only-binary=:all:"]


class Installation:
    """Runs of pip that are shown as one.

    Args:
        venv: the environment whose pip it is, and where the log is.
        scratch: pip's folder for temporary files.
    """

    def __init__(self, venv: Path, line: Line, scratch: Path) -> None:
        self.venv, self.line, self.scratch = venv, line, scratch
        self.python = venv / "bin" / "python"
        self.log = venv / ".slipway" / "setup.log"
        self.wheels = venv / ".slipway" / "wheels"

    def pip(self, words: list[str], total: int) -> str:
        """Run pip for ``total`` packages, and keep its output in the log; empty if it went well, else what it said."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        said: collections.deque[str] = collections.deque(maxlen=_SAID)
        self.line.unpacking = False
        env = {
            **os.environ,
            "TMPDIR": os.fspath(self.scratch),
            "PYTHONUNBUFFERED": "1",
            **dict.fromkeys(["PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INPUT"], "1"),
            "PIP_CONSTRAINT": os.devnull,  # the machine's own would turn a missing wheel into a conflict of versions
        }
        count = 0
        with process(words, env=env, stderr=subprocess.STDOUT) as child:
            assert child.stdout is not None  # noqa: S101 - set, because stdout is PIPE
            for raw in lines_of(child.stdout):
                line = raw.decode(errors="replace")
                said.append(line)
                with contextlib.suppress(OSError), self.log.open("a", encoding="utf-8") as file:
                    file.write(line)
                count += line.startswith(("Collecting", "Processing"))
                self.line.unpacking |= line.startswith("Installing collected")
                if self.line.unpacking or not line.startswith(("WARNING", "Looking")):
                    what = "unpacking" if self.line.unpacking else line.strip()
                    self.line.doing = f"{min(count, total)}/{total}  {what}"
            code = child.wait()
        return "".join(said) or f"it ended with {code}" if code else ""

    def install(self, words: list[str], total: int) -> None:
        """Run pip.

        Raises:
            HostError: it failed.
        """
        if said := self.pip(words, total):
            _explain_pip(said, self.log)


@contextlib.contextmanager
def installation(venv: Path, size: Size, target: Path | None = None) -> Iterator[Installation]:
    """Show runs of pip in the block as one installation of ``size`` into ``target``, else into ``venv``."""
    with tempfile.TemporaryDirectory(prefix="slipway-pip-") as folder:
        scratch = Path(folder)
        with Line(size, scratch, target or venv) as line:
            yield Installation(venv, line, scratch)


def last_lines(text: str) -> str:
    """The last four lines that say something."""
    lines = [line for line in text.strip().splitlines() if line.strip() and "WARNING" not in line]
    return "\n".join(lines[-4:])


def explain_disk(text: str, path: Path) -> None:
    """Raise `HostError` if the disk was full; ensurepip hides the reason, so look at the free space too."""
    folder = next(parent for parent in (path, *path.parents) if parent.exists())
    if (
        re.search(r"No space left on device|Errno 28|Disk quota exceeded", text)
        or shutil.disk_usage(folder).free < _LEAST_FREE
    ):
        raise HostError(
            f"No space left on this machine while setting up {path}.",
            "the disk, your quota or the folder for temporary files is full",
            "free some space (TMPDIR can name another folder for temporary files), then the same command again",
        )


def _explain_pip(text: str, log: Path) -> NoReturn:
    explain_disk(text, log)
    if refused := REFUSED.search(text):
        source = f", from {refused[2]}," if refused[2] else ""
        raise HostError(
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
        raise HostError(
            "Could not reach the Python package index.",
            f"there is no network, or a proxy blocks it; pip's output is in {log}",
            retry,
        )
    if missing := re.search(r"No matching distribution found for (\S+)", text):
        raise HostError(
            f"The Python package index did not offer {missing[1]}.",
            f"the index lacks it, or has no wheel of it for Python {sys.version.split()[0]} here; see {log}",
            "python3.11, which every package is built for: SLIPWAY_PYTHON=python3.11",
        )
    raise HostError("pip could not install the packages.", f"{last_lines(text)}\nIts whole output is in {log}.", retry)


_ADDRESSED = re.compile(r"(\S+) @ (\S+) ; (.+?) \\\n +--hash=sha256:([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Wheel:
    """One wheel for one version of Python and one kind of machine."""

    package: str
    address: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name: ``torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl``."""
        return urllib.parse.unquote(self.address.rpartition("/")[2])

    @property
    def pin(self) -> str:
        """By which a package index or a folder has it: ``torch==2.13.0+cpu``."""
        return "==".join(self.file.split("-")[:2])

    def listed(self, file: Path) -> str:
        """The line of pip's requirements that installs it from ``file``."""
        return f"{self.package} @ {file.as_uri()} --hash=sha256:{self.sha256}\n"


def marker(system: str, machine: str, python: str) -> str:
    """The condition that a lock puts behind an address: ``marker("linux", "x86_64", "3.11")``."""
    return f"sys_platform == '{system}' and platform_machine == '{machine}' and python_version == '{python}'"


def parted(lines: str) -> tuple[str, Wheel | None]:
    """A lock's lines without those that have an address, and the one of these that is for this Python and machine.

    Raises:
        HostError: there are addresses for this system, but none for this Python.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    mine = marker(sys.platform, platform.machine(), python)
    found = [Wheel(*match.group(1, 2, 4)) for match in _ADDRESSED.finditer(lines) if match[3] == mine]
    system = f"sys_platform == '{sys.platform}'"
    others = [Wheel(*match.group(1, 2, 4)) for match in _ADDRESSED.finditer(lines) if match[3].startswith(system)]
    if others and not found:
        raise HostError(
            f"There is no {others[0].pin} for Python {python} on {platform.machine()}.",
            f"PyTorch's CPU builds are {', '.join(each.file for each in others)}",
            "one of these Pythons: SLIPWAY_PYTHON=python3.11 with another SLIPWAY_VENV=FOLDER",
        )
    return _ADDRESSED.sub("", lines), found[0] if found else None


def fetch(wheel: Wheel, doing: Installation) -> Path:
    """The wheel's file: what pip's own settings give (a folder, a mirror), else what its address does.

    It stays in the environment until `done`, so that an installation that fails later does not fetch it again.

    Raises:
        HostError: neither has it, or only other bytes.
    """
    folder = doing.wheels
    file = folder / wheel.file
    folder.mkdir(parents=True, exist_ok=True)

    def ask(source: str) -> str:
        """What pip said; empty if it has the file."""
        listing, asked = folder / "listing.txt", folder / "asked"
        listing.write_text(f"{source} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        if said := doing.pip([*pip_words(doing.python, "download"), "--dest", str(asked), "-r", str(listing)], 1):
            explain_disk(said, folder)
        else:
            (asked / wheel.file).replace(file)
        return said

    if (
        not file.is_file()  # only checked files get this name
        and (said := ask(wheel.pin))
        and (of_address := ask(f"{wheel.package} @ {wheel.address}"))
    ):
        _explain(wheel, said, of_address, doing.log)
    return file


def done(doing: Installation) -> None:
    """Remove what `fetch` fetched: it is installed."""
    shutil.rmtree(doing.wheels, ignore_errors=True)


def _explain(wheel: Wheel, said: str, of_address: str, log: Path) -> NoReturn:
    """Raise `HostError`: what pip's sources and the address did, and both ways out."""
    other, found = REFUSED.search(said), REFUSED.search(of_address)
    pips = f"another file of that name, SHA-256 {other[3]}" if other else "no such file"
    ways = f"put {wheel.address} from another machine into a folder, then PIP_FIND_LINKS=FOLDER and the same command"
    if found:
        raise HostError(
            f"{wheel.pin} was not installed: {wheel.address} has another file than Slipway's lock names.",
            f"its SHA-256 is {found[3]}, not {wheel.sha256}; pip's own sources have {pips}; see {log}",
            f"see what is between, as a proxy; else {ways}",
        )
    why = last_lines(of_address).rpartition("ERROR: ")[2].strip()
    raise HostError(
        f"{wheel.pin} could not be downloaded.",
        f"{wheel.address}: {why}; pip's own sources have {pips}; see {log}",
        f"the same command again once the network or the proxy (https_proxy) works. Or {ways}",
    )
