"""The shell scripts that run on a device: POSIX sh, run by dash, busybox, mksh with toybox, and bash.

File names come as arguments, never inside a script's text; ``$1`` of most is the store's root. ``lib/`` has functions;
a line ``. ./lib/NAME.sh`` stands for that file's text, since a device gets each script whole, in one command.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_HERE = Path(__file__).parent
_INCLUDE = re.compile(r"\. \./((?:lib/)?[a-z_]+)\.sh")


@functools.cache
def script(name: str, mac: bool = False) -> str:
    """``NAME.sh`` as a device gets it: with what it includes, each file once, and without indentation and comments.

    For a Mac each ``lib/NAME.mac.sh`` comes instead of ``lib/NAME.sh``.

    dropbear takes no long commands, and slow devices read every byte.
    """
    return "".join(f"{line}\n" for line in _lines(name, set(), mac))


@functools.cache
def for_mac() -> dict[str, str]:
    """Each script as other devices get it, to what a Mac gets."""
    return {script(name): script(name, mac=True) for name in names()}


def names() -> list[str]:
    """All of them, without those below ``lib/``."""
    return sorted(file.stem for file in _HERE.glob("*.sh"))


def _lines(name: str, seen: set[str], mac: bool) -> list[str]:
    found: list[str] = []
    own = _HERE / f"{name}.mac.sh"
    for line in (own if mac and own.is_file() else _HERE / f"{name}.sh").read_text(encoding="utf-8").splitlines():
        text = line.strip()
        include = _INCLUDE.fullmatch(text)
        if include is None:
            found += [text] if text and not text.startswith("#") else []
        elif include[1] not in seen:
            seen.add(include[1])
            found += _lines(include[1], seen, mac)
    return found
