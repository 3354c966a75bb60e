"""The shell script under which every command runs on a device.

It gives the command a session (hence process group) of its own and ends that whole group when

- its standard input closes: this side closes it to end the command, and it closes by itself when the
  connection breaks or this side dies;
- its time is over, in case the connection hangs half-open.

It exits only when no process of the group is left, so an exit status means that all of them ended.
Plain POSIX sh plus ``sleep`` and, if available, ``setsid``: dash, busybox, mksh and bash all run it.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from deploy.scripts import script
from deploy.transport.hearing import MARK

GRACE = 3
"""Seconds between TERM and KILL."""
_PAUSES = "0.1 0.1 0.2 0.3 0.5 0.8 1"
"""Pauses between two checks whether the group is gone, `GRACE` in all. Few and growing: on a slow device each check
starts a program that takes longer than the pause itself."""

_LONGEST = 24 * 3600
_EXTRA = 5.0
"""Seconds the device's own timer waits longer than this side: this side's message is better."""


def supervised(
    argv: Sequence[str], *, seconds: float, cwd: str = "", env: Mapping[str, str] | None = None, pidfile: str = ""
) -> list[str]:
    """``argv`` under the supervisor, as an argv for a device's own execve.

    Args:
        seconds: the device ends the command itself after these (and a little).
        cwd: folder to run in, made when only it is not there; the login folder when empty.
        env: set on top of the device's own environment.
        pidfile: file on the device that gets the group's number.
    """
    words = [f"{name}={value}" for name, value in (env or {}).items()]
    prefix = ["env", *words] if words else []
    limit = math.ceil(min(seconds + _EXTRA, _LONGEST))
    return ["sh", "-c", script("supervise"), "slipway", pidfile, str(limit), _PAUSES, cwd or ".", *prefix, *argv]


def marked(argv: Sequence[str]) -> list[str]:
    """``argv``, which prints the mark on both streams before all else."""
    mark = MARK.decode().strip()
    says = f"echo {mark};echo {mark} >&2\n"
    if list(argv[:2]) == ["sh", "-c"]:
        return ["sh", "-c", says + argv[2], *argv[3:]]
    return ["sh", "-c", f'{says}exec "$@"', "slipway", *argv]


def quoted(argv: Sequence[str]) -> str:
    """``argv`` as one line for a remote login shell."""
    return shlex.join(argv)
