"""The owner of things on a device: a name for each session, and whether a session of this machine still lives."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import secrets
import socket
from pathlib import Path

_OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{8}")
_active: set[str] = set()


def _host_mark() -> str:
    """Eight hex digits that identify host, boot and pid namespace, within which process numbers are comparable."""
    parts = [socket.gethostname(), str(os.getuid()) if hasattr(os, "getuid") else ""]
    for file in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with contextlib.suppress(OSError):
            parts.append(Path(file).read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def new_owner() -> str:
    """A name for one session's files: this machine, this process, and a random part."""
    return f"{_host_mark()}-{os.getpid()}-{secrets.token_hex(4)}"


def begin(owner: str) -> None:
    """Count ``owner`` among this process's living sessions."""
    _active.add(owner)


def end(owner: str) -> None:
    """The session is over."""
    _active.discard(owner)


def owner_of(name: str) -> str:
    """The owner in the name of a leftover: ``incoming/<sha256>.<owner>.part``, ``runs/<owner>``."""
    return name.rpartition("/")[2].removesuffix(".part").rpartition(".")[2]


def is_dead(owner: str) -> bool:
    """Whether ``owner`` was a session of this machine and has ended; false for another machine's sessions."""
    match = _OWNER.fullmatch(owner)
    if match is None or match["host"] != _host_mark():
        return False
    pid = int(match["pid"])
    if pid == os.getpid():
        return owner not in _active
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def signature() -> str:
    """This process, for people on other machines: ``ann@laptop, process 4711``; without what a shell's echo changes."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "?"
    text = f"{user}@{socket.gethostname()}, process {os.getpid()}"
    return "".join(letter if letter.isprintable() else "?" for letter in text.replace("\\", "/"))
