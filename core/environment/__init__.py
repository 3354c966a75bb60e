"""The requirement sets beyond the core: installed into the same environment the first time they are needed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.environment import bootstrap, installer
from core.environment.installer import MARK, SHOWN, Size, listener
from core.errors import HostError
from core.paths import ROOT


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
    if not bootstrap.is_installed(own, "core"):
        code = _begun("core", own).wait()
        if code:
            raise SystemExit(code)
    python = os.fspath(own / "bin" / "python")
    os.execv(python, [python, "-S", os.fspath(ROOT / "core" / "cli" / "start.py"), *sys.argv[1:]])  # noqa: S606 - argv, no shell


def _begun(name: str, folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    """The bootstrap."""
    return _started(["--bootstrap", name, os.fspath(folder)], **options)


def _started(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Our own start. It begins deaf to Ctrl-C, for Python would end with a traceback before its first line."""
    argv = [sys.executable, "-S", os.fspath(ROOT / "core" / "cli" / "start.py"), *words]
    hears = signal.getsignal(signal.SIGINT)
    if hears is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        return subprocess.Popen(argv, **options)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        options["env"] = {**options.get("env", os.environ), "SLIPWAY_LISTEN": "yes"}
        return subprocess.Popen(argv, **options)
    finally:
        signal.signal(signal.SIGINT, hears)


def end(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child's end after a Ctrl-C."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)  # a terminal's Ctrl-C reaches it, too
        return
    # kill, and a CI system that cancels a job, reach this process only. SIGINT may be ignored, as in the background.
    child.terminate()
    child.wait()


class _Installing:
    """The installation of a set by a child, shown as a step, beside what this process does.

    If it fails while nobody waits for it, it interrupts the main thread, as Ctrl-C does: nothing goes on in vain.
    """

    def __init__(self, name: str) -> None:
        from core import console

        self.name = name
        self.interrupted = False
        """Whether it has interrupted the main thread."""
        self._watched = self._ended = False
        self._lock = threading.Lock()
        label = bootstrap.LABELS[name].label.partition(",")[0]
        self._step = console.begin(f"installing {label}", announce=False)
        self.child = _begun(name, venv(), stderr=subprocess.PIPE, env={**os.environ, SHOWN: "yes"})
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        from core import console
        from core.console import live

        assert self.child.stderr is not None  # noqa: S101 - it is a pipe
        with self.child.stderr as said:
            for line in said:
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith(MARK):
                    done, _, words = text.removeprefix(MARK).partition(" ")
                    self._step.now(words)
                    self._step.part(float(done))
                    live.share("exporter", float(done))
                elif not self._ended:
                    console.note(text)
        code = self.child.wait()
        self._step.end(ok=not code)
        with self._lock:
            if self._watched and code not in (0, 130):
                numbers = [one for one in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(one))]
                self.interrupted = bool(numbers)
                for number in numbers[:1]:
                    os.kill(os.getpid(), number)

    def wait(self) -> None:
        """Until it is installed.

        Raises:
            HostError: it could not be; the reason was printed.
        """
        self.unwatch()
        try:
            code = self.child.wait()
            self._listener.join()
        except KeyboardInterrupt:
            self.end()
            raise
        if code == 130:
            raise KeyboardInterrupt
        if code:
            raise self.error()

    def watch(self) -> None:
        """Let it interrupt the main thread from here on.

        Raises:
            HostError: it has failed already.
        """
        with self._lock:
            self._watched = True
            if self.child.poll() not in (None, 0, 130):
                self._watched = False
                raise self.error()

    def unwatch(self) -> None:
        """It interrupts nobody from here on."""
        with contextlib.suppress(KeyboardInterrupt):
            with self._lock:
                self._watched = False
            if self.interrupted:
                time.sleep(1.0)  # the signal may be on its way

    def error(self) -> HostError:
        """Why it has failed."""
        return why(self.name) or HostError(
            f"The {self.name} packages could not be installed.", "see above", "the same command again"
        )

    def end(self) -> bool:
        """End it, if it still runs; what is done stays. Returns whether it had failed."""
        failed = self.child.poll() not in (None, 0, 130)
        self._ended = True
        end(self.child)
        self._listener.join()
        return failed


_beside: dict[str, _Installing] = {}


def ensure(name: str) -> None:
    """Install the set ``name`` (``export``, ``onnx``, ``labgrid`` or ``test``) unless it is there.

    Raises:
        HostError: it could not be installed; the reason was printed.
    """
    if bootstrap.is_installed(venv(), name):
        return
    if sys.prefix == sys.base_prefix:
        raise HostError(
            f"The {name} packages are not installed, and this Python is not a virtual environment.",
            "Slipway does not install into a system's Python",
            "./inv, which makes its own environment",
        )
    (_beside.get(name) or _Installing(name)).wait()


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
        one.watch()
        yield
        one.unwatch()
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            one.unwatch()
        failed = one.end()
        if one.interrupted:
            raise one.error() from None
        if failed and str(error) != str(one.error()) and not isinstance(error, KeyboardInterrupt):
            from core.console import note

            note(f"Besides: {one.error().what} {one.error().cause}")
        raise
    finally:
        del _beside[name]
        one.end()


@contextlib.contextmanager
def running(*words: str) -> Iterator[None]:
    """Run a command of ours, unseen, while the block runs; it ends with it."""
    quiet = subprocess.DEVNULL
    child = _started(["--search-root", os.fspath(ROOT), *words], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        end(child)


@contextlib.contextmanager
def shown(size: Size) -> Iterator[None]:
    """Show an installation that this process does in the block as a step."""
    from core import console

    with console.step(f"installing {size.label.partition(',')[0]}", announce=False) as step:

        def hear(done: float, words: str) -> None:
            step.part(done)
            step.now(words)

        listener.append(hear)
        try:
            yield
        finally:
            listener.remove(hear)


def why(name: str) -> HostError | None:
    """Why a set could not be installed the last time; None if it is there, or nobody tried."""
    file = bootstrap.failure(venv(), name)
    if bootstrap.is_installed(venv(), name) or not file.is_file():
        return None
    return host_error(file.read_text(encoding="utf-8"))


def host_error(text: str) -> HostError:
    """The error that a `SetupError` says in lines."""
    rest, _, hint = text.rpartition("\nTry: ")
    what, _, cause = rest.partition("\nCause: ")
    return HostError(what, cause, hint)


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
                try:
                    with shown(bootstrap.LABELS[name]):
                        bootstrap.install_apart(name, venv(), folder)
                except installer.SetupError as error:
                    raise host_error(str(error)) from error
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
            last = done.stderr.strip().splitlines()[-1:]
            raise HostError(
                f"The installed torch does not run here: {' '.join(last)}",
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


def ensure_test() -> None:
    """The test tools."""
    ensure("test")
