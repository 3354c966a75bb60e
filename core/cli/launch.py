"""The command ``slipway`` of an installed Slipway: its own environment once, then the same start as ``./inv``.

The wheel has this file as ``slipway/__main__.py``. It runs in the user's environment, with the standard library only.
The packages that Slipway needs are pins; in an environment of their own, made from ``locks/`` with digests checked,
they never meet what the user has installed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent / "_dist" / "slipway"
_PYTHONS = (3, 10), (3, 13)


def environment() -> Path:
    """The folder of the environment: ``SLIPWAY_VENV``, or one in the cache for this copy of Slipway and this Python."""
    if named := os.environ.get("SLIPWAY_VENV"):
        return Path(named).absolute()
    # As core.paths.cache_dir, which needs platformdirs.
    base = os.environ.get("SLIPWAY_CACHE") or os.path.join(  # noqa: PTH118
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "slipway"
    )
    key = hashlib.sha256(f"{HOME} {sys.version}".encode()).hexdigest()[:16]
    return Path(base).expanduser().absolute() / "env" / key


def ready(venv: Path) -> bool:
    """Whether the environment was made from the lock that this copy has."""
    try:
        stamp = venv.joinpath(".slipway", "core" + ".lock").read_bytes()
        return stamp == (HOME / "locks" / "core.txt").read_bytes() and os.access(venv / "bin" / "python", os.X_OK)
    except OSError:
        return False


def main() -> int:
    """Run the words of the command line; the exit code."""
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        sys.stderr.write(
            f"Slipway needs Python 3.10 to 3.13, and runs on {sys.version.split()[0]}.\n"
            "Cause: its packages are pinned for those\n"
            "Try: an environment of another Python, such as python3.13 -m venv\n"
        )
        return 4
    try:
        venv = environment()
        start = ["-S", str(HOME / "core" / "cli" / "start.py")]
        # It hears Ctrl-C again: before its first line, Python would end with a traceback.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.environ["SLIPWAY_LISTEN"] = "yes"
        if not ready(venv):
            # The same Ctrl-C reaches the bootstrap, which says what there is to say.
            code = subprocess.Popen([sys.executable, *start, "--bootstrap", "core", str(venv)]).wait()
            if code:
                return code
        python = str(venv / "bin" / "python")
        os.execv(python, [python, *start, *sys.argv[1:]])  # noqa: S606 - argv, no shell
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
