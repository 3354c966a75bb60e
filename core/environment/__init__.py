"""The requirement sets beyond the core: installed into the same environment the first time they are needed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.environment import bootstrap
from core.environment.installer import Size, heard
from core.errors import HostError
from core.paths import ROOT
from core.processes.commands import end_all


def venv() -> Path:
    """The environment that this process runs in."""
    return Path(sys.prefix)


def enter() -> None:
    """Go on in the project's own environment if another environment's Invoke was started: ``invoke build``.

    Returns at once in that environment; else makes it if need be and replaces this process by the same
    command in it.
    """
    if bootstrap.stamp(venv(), "core").is_file():
        return
    own = Path(os.environ.get("SLIPWAY_VENV") or ROOT / ".venv")
    if not bootstrap.is_installed(own, "core") and (code := _started(["--bootstrap", "core", os.fspath(own)]).wait()):
        raise SystemExit(code)
    python = os.fspath(own / "bin" / "python")
    os.execv(python, [python, "-S", os.fspath(ROOT / "core" / "cli" / "start.py"), *sys.argv[1:]])  # noqa: S606 - argv, no shell


def _started(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Our own start. It begins deaf to Ctrl-C, for Python would end with a traceback before its first line."""
    argv = [sys.executable, "-S", os.fspath(ROOT / "core" / "cli" / "start.py"), *words]
    hears = signal.getsignal(signal.SIGINT)
    if hears is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        return subprocess.Popen(argv, **options)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(argv, env={**os.environ, "SLIPWAY_LISTEN": "yes"}, **options)
    finally:
        signal.signal(signal.SIGINT, hears)


def _failure(name: str) -> Path:
    """Why the set could not be installed the last time, as JSON; no such file if it could, or nobody tried."""
    return bootstrap.stamp(venv(), name).with_suffix(".failed")


def why(name: str) -> HostError | None:
    """Why a set could not be installed the last time; None if it is there, or nobody tried."""
    if bootstrap.is_installed(venv(), name):
        return None
    try:
        return HostError(*json.loads(_failure(name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _install(name: str) -> None:
    """Install a set, shown as a step; `why` tells later if it could not be."""
    try:
        with shown(bootstrap.LABELS[name], name), bootstrap.disk_errors(venv()), bootstrap.alone(venv()):
            bootstrap.install(name, venv())
    except HostError as error:
        if not (name in _beside and _beside[name].ended):
            with contextlib.suppress(OSError):
                _failure(name).parent.mkdir(parents=True, exist_ok=True)
                _failure(name).write_text(json.dumps([error.what, error.cause, error.hint]), encoding="utf-8")
        raise
    _failure(name).unlink(missing_ok=True)


class _Installing:
    """The installation of a set by a thread, beside what the main thread does.

    If it fails while nobody waits for it, it interrupts the main thread, as Ctrl-C does: nothing goes on in vain.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: Exception | None = None
        self.interrupted = self.ended = False
        """Whether it has interrupted the main thread, and whether `end` was called."""
        self._watched = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        """It may interrupt the main thread from here on."""
        self._watched = True
        self._thread.start()

    def _run(self) -> None:
        try:
            _install(self.name)
        except Exception as error:  # noqa: BLE001  # the main thread raises it
            self.error = error
        with self._lock:
            if self._watched and self.error:
                numbers = [one for one in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(one))]
                self.interrupted = bool(numbers)
                for number in numbers[:1]:
                    os.kill(os.getpid(), number)

    def wait(self) -> None:
        """Until it is installed.

        Raises:
            HostError: it could not be.
        """
        self.unwatch()
        self._thread.join()
        if self.error:
            raise self.error

    def unwatch(self) -> None:
        """It interrupts nobody from here on."""
        with contextlib.suppress(KeyboardInterrupt):
            with self._lock:
                self._watched = False
            if self.interrupted:
                time.sleep(1.0)  # the signal may be on its way

    def end(self) -> None:
        """End it, if it still runs; what is done stays."""
        self.ended = True
        until = time.monotonic() + _GRACE
        while self._thread.is_alive() and time.monotonic() < until:
            end_all()
            self._thread.join(0.1)


_GRACE = 10.0
"""Seconds that an installation may take to end: it may be waiting for another process, which holds it up."""
_beside: dict[str, _Installing] = {}


def ensure(name: str) -> None:
    """Install the set ``name`` (``export``, ``onnx``, ``labgrid`` or ``test``) unless it is there.

    Raises:
        HostError: it could not be installed.
    """
    if bootstrap.is_installed(venv(), name):
        return
    if sys.prefix == sys.base_prefix:
        raise HostError(
            f"The {name} packages are not installed, and this Python is not a virtual environment.",
            "Slipway does not install into a system's Python",
            "./inv, which makes its own environment",
        )
    if name in _beside:
        _beside[name].wait()
    else:
        _install(name)


@contextlib.contextmanager
def beside(name: str) -> Iterator[None]:
    """Install the set ``name`` while the block runs, unless it is there; `ensure` in the block waits for it.

    Raises:
        HostError: it could not be installed. The block was interrupted.
    """
    if bootstrap.is_installed(venv(), name) or sys.prefix == sys.base_prefix:
        yield
        return
    one = _beside[name] = _Installing(name)
    try:
        one.begin()
        yield
        one.unwatch()
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            one.unwatch()
        failed = one.error
        one.end()
        if failed and one.interrupted:
            raise failed from None
        if failed is not None and failed is not error and not isinstance(error, KeyboardInterrupt):
            from core.console import note

            note(f"Besides: {failed}")
        raise
    finally:
        one.end()
        del _beside[name]


@contextlib.contextmanager
def running(*words: str) -> Iterator[None]:
    """Run a command of ours, unseen, while the block runs; it ends with it."""
    quiet = subprocess.DEVNULL
    child = _started(["--search-root", os.fspath(ROOT), *words], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        try:
            child.wait(1.0)  # a terminal's Ctrl-C reaches it, too
        except subprocess.TimeoutExpired:
            # kill, and a CI system that cancels a job, reach this process only; in the background SIGINT is ignored.
            child.terminate()
            child.wait()


@contextlib.contextmanager
def shown(size: Size, name: str = "") -> Iterator[None]:
    """Show the installations that this thread does in the block, of the set ``name`` or of other files, as a step."""
    from core import console
    from core.console import live

    with console.step(f"installing {size.label.partition(',')[0]}", announce=False) as step:

        def hear(done: float, words: str) -> None:
            step.part(done)
            step.now(words)
            if name == "export":
                live.share("exporter", done)

        before = heard.set(hear)
        try:
            yield
        finally:
            heard.reset(before)


def renew(name: str) -> str:
    """The command after which the next one that needs the set installs all of it again."""
    return f"rm {bootstrap.stamp(venv(), name)}; then the same command again"


def apart(name: str) -> Path:
    """The folder with the set ``name``, which no environment has; it is installed there the first time.

    A process that needs it has the folder on its path, after this environment's own packages.

    Raises:
        HostError: it could not be installed.
    """
    from core.files import locked, sha256_file
    from core.paths import cache_dir

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    version = f"python{python}-{sha256_file(bootstrap.lock_file(name))[:16]}"
    folder = cache_dir("nets") / version if name == "nets" else cache_dir("packages") / f"{name}-{version}"
    if not folder.is_dir():
        with locked(f"packages-{name}"):
            if not folder.is_dir():
                with shown(bootstrap.LABELS[name]):
                    bootstrap.install_apart(name, venv(), folder)
    return folder


def ensure_export() -> None:
    """The exporter's set, and a check that its torch runs here."""
    here = venv()
    fresh = not bootstrap.is_installed(here, "export")
    ensure("export")
    if fresh:
        done = subprocess.run([sys.executable, "-I", "-c", "import torch"], capture_output=True, text=True, check=False)
        if done.returncode:
            bootstrap.stamp(here, "export").unlink(missing_ok=True)
            raise HostError(
                f"The installed torch does not run here: {' '.join(done.stderr.strip().splitlines()[-1:])}",
                "a library that it needs is not on this machine, or its processor is too old",
                "install that library with the system's packages, then the same command again",
            )


def idle_threads_sleep() -> None:
    """Let PyTorch's threads sleep while they have no work, unless the user decided otherwise; before torch is loaded.

    Most of an export is one thread's work. The others would keep a processor busy for milliseconds after each operator.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def ensure_onnx() -> None:
    """What exporting to ``.onnx`` and its reference outputs need; the exporter's torch comes with it."""
    ensure_export()
    ensure("onnx")
