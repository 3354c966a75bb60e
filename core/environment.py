"""The requirement sets beyond the core: installed into the same environment the first time they are needed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from core import bootstrap, installer
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
    os.execv(python, [python, "-S", os.fspath(ROOT / "core" / "start.py"), *sys.argv[1:]])  # noqa: S606 - argv, no shell


def _begun(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """The bootstrap. It begins deaf to Ctrl-C, for Python would end with a traceback before its first line."""
    words = [sys.executable, "-S", os.fspath(ROOT / "core" / "start.py"), "--bootstrap", name, os.fspath(folder)]
    hears = signal.getsignal(signal.SIGINT)
    if hears is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        return subprocess.Popen(words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(words, env={**os.environ, "SLIPWAY_LISTEN": "yes"})
    finally:
        signal.signal(signal.SIGINT, hears)


def ensure(name: str) -> None:
    """Install the set ``name`` (``export``, ``onnx``, ``labgrid`` or ``test``) unless it is there.

    Raises:
        HostError: it could not be installed; the reason was printed.
    """
    here = venv()
    if bootstrap.is_installed(here, name):
        return
    if sys.prefix == sys.base_prefix:
        raise HostError(
            f"The {name} packages are not installed, and this Python is not a virtual environment.",
            "Slipway does not install into a system's Python",
            "./inv, which makes its own environment",
        )
    child = _begun(name, here)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)  # a terminal's Ctrl-C reaches it, too
            raise
        child.send_signal(signal.SIGINT)  # kill, and a CI system that cancels a job, reach this process only
        child.wait()
        raise
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise why(name) or HostError(
            f"The {name} packages could not be installed.", "see above", "the same command again"
        )


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
