"""One deploy at a time on a device, across all machines.

The lock is a link on the device, held by a process there that ends with the connection (``deploy/scripts/lock.sh`` says
how it is taken and given back). No machine's clock is trusted: a lock is free when its holder's process is gone or the
device was restarted, which the device sees by itself, or when the holder heard nothing from its side for `STALE`
seconds of the device's own time since its start.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shlex
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import DeviceFullError, SlipwayError, TransferError, UnreachableError
from core.files import sha256_bytes
from core.plain import one_line, says
from deploy.devices.probe import END, parse, refusal
from deploy.scripts import script
from deploy.transport.base import Channel, Transport, is_full
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import ANSWER

BEAT = 5.0
"""Seconds between two lines by which a holder hears that this side lives."""
STALE = 60
"""Seconds without one, after which another may take the device: an upload on a slow link may delay a line."""
_ANSWER = 30.0
"""Seconds within which the device must have answered."""
_TELLING = 90.0
"""Additional seconds if the command also probes: a slow device takes a while to search a library."""
_RELEASE = 8.0


@dataclass(frozen=True)
class Answer:
    """The device's answer to one attempt."""

    kind: str
    """``absent``, ``busy``, ``refused`` or ``acquired``."""
    who: str = ""
    """The holder in words, if busy; the path, if refused."""
    why: str = ""
    lines: tuple[str, ...] = ()
    """The survey, when acquired."""
    probed: str = ""
    """The probe's output, if it was requested."""


class DeviceLock:
    """The lock of the store at ``root`` on the device behind ``transport``."""

    def __init__(self, transport: Transport, root: str, owner: str) -> None:
        self._transport, self.root, self._owner = transport, root, owner
        self.id = ""
        """The id in the root's marker, once the lock is held."""
        self._channel: Channel | None = None
        self._stop = threading.Event()
        self._beater = threading.Thread()

    @property
    def held(self) -> bool:
        """Whether it was acquired and not yet given back."""
        return self._channel is not None

    def fits(self, names: Sequence[str], question: Sequence[str]) -> bool:
        """Whether the device accepts a command as long as that of `attempt` with a question."""
        return len(shlex.join(self._words(names, False, question)).encode()) <= self._transport.longest

    def check(self) -> None:
        """Check that the lock is still ours.

        Raises:
            UnreachableError: the connection broke, or the holder was ended on the device.
        """
        if self._channel is None:
            return
        code = None
        for _ in range(3):  # its last words, the end of both streams, the exit status
            code = self._channel.pump(0) if code is None else code
        if code is not None:
            self._drop()
            raise UnreachableError(
                f"{self._transport.name} dropped the lock of this deploy.",
                "its holder there was ended: by hand, for want of memory, or by another deploy after the device heard "
                f"nothing from this one for {STALE} s",
                "the same command again",
            )

    def release(self, tidy: bool = False) -> None:
        """Release it; the device removes the run's folder with it, and with ``tidy`` unfinished uploads, too.

        A failure leaves a stale lock, not an error.
        """
        channel = self._channel
        if channel is None:
            return
        self._stop_beating()
        patience = Deadline.after(_RELEASE)
        with contextlib.suppress(SlipwayError, OSError):
            channel.heard.forget()
            if tidy:
                channel.send(b"tidy\n", _RELEASE)
            channel.end_input()
            while not patience.over and channel.pump(patience.left(0.2)) is None:
                pass
        self._drop()

    def attempt(
        self, names: Sequence[str], deadline: Deadline, *, make: bool = False, question: Sequence[str] = ()
    ) -> Answer:
        """One attempt to take the lock, together with the probe if there is a question, its words: in one round trip.

        Raises:
            RootError: the root is not ours. UnreachableError, TransferError, DeviceFullError.
        """
        doing = f"asking and locking {self._transport.name}" if question else f"locking {self._transport.name}"
        deadline.check(doing)
        channel = self._transport.start(self._words(names, make, question), deadline)
        channel.heard.limit, channel.heard.doing = ANSWER, doing
        try:
            answer = self._read(channel, deadline, doing, with_probe=bool(question))
        except BaseException:
            channel.close()
            raise
        if answer.kind == "acquired":
            self._channel = channel
            self._stop.clear()
            self._beater = threading.Thread(target=self._beat, args=(channel,), name="device-lock", daemon=True)
            self._beater.start()
        else:
            channel.close()
        if answer.kind == "refused":
            raise refusal(self._transport.name, answer.why, answer.who)
        return answer

    def _words(self, names: Sequence[str], make: bool, question: Sequence[str]) -> list[str]:
        text, first = (script("open"), question) if question else (script("lock"), [self.root])
        own = [self._owner, signature(), str(STALE), "yes" if make else "no", secrets.token_hex(16)]
        return ["sh", "-c", text, "slipway", *first, *own, *names]

    def _read(self, channel: Channel, deadline: Deadline, doing: str, with_probe: bool) -> Answer:
        patience = Deadline.after(deadline.left(_ANSWER + _TELLING if with_probe else _ANSWER))
        code, probed, lines = None, "", [""]
        seen = -1
        while code is None:
            code = channel.pump(patience.left(0.2))
            heard = channel.heard.stdout
            if len(heard) != seen and (code is not None or b"\nready\n" in heard):
                seen = len(heard)
                text = heard.decode(errors="replace")
                if with_probe:
                    probed, end, text = text.partition(END)
                    probed += end
                lines = text.splitlines() or [""]
                if "ready" in lines and (match := re.fullmatch(r"acquired ([0-9a-f]*)", lines[0])):
                    self.id = match[1]
                    return Answer("acquired", lines=tuple(lines[1 : lines.index("ready")]), probed=probed)
            if code is None and patience.over:
                raise deadline.error(doing) if deadline.over else UnreachableError(
                    f"{self._transport.name} stopped answering while {doing}.",
                    says(f"the login of {self._transport.name}", channel.heard.greeting), "the same command again",
                )  # fmt: skip
        if with_probe and not probed.endswith(END):
            parse(probed)  # raises: the answer is incomplete
        first = lines[0]
        if code == 0 and first == "absent":
            return Answer("absent", probed=probed)
        if code == 0 and first == "busy":
            return Answer("busy", one_line("".join(lines[1:2]), 120), probed=probed)
        if code == 0 and (match := re.fullmatch(r"refused ([a-z]+)", first)):
            return Answer("refused", one_line("".join(lines[1:2]), 400), match[1], probed=probed)
        said = channel.heard.stderr[-600:].decode(errors="replace").strip()
        what = doing if is_full(said) else "making the store's folders"
        raise trouble(self._transport.name, what, self.root, code, said)

    def _beat(self, channel: Channel) -> None:
        while not self._stop.wait(BEAT):
            with contextlib.suppress(OSError):  # `check` tells
                channel.send(b"beat\n", BEAT)

    def _stop_beating(self) -> None:
        self._stop.set()
        if self._beater.is_alive():
            self._beater.join(timeout=2)

    def _drop(self) -> None:
        self._stop_beating()
        if self._channel is not None:
            self._channel.close()
        self._channel = None


def trouble(name: str, doing: str, root: str, code: int, said: str) -> SlipwayError:
    """The error for a script of ours that failed on the device ``name``."""
    if is_full(said):
        return DeviceFullError(
            f"No space left on {name} while {doing}.",
            says(name, said),
            "free some space there, or set another root for the device in devices.toml",
        )
    return TransferError(
        f"{name} failed while {doing} in {root} (exit {code}).",
        says(name, said),
        "see that the folder belongs to the login's user, or set another root in devices.toml",
    )


def new_owner() -> str:
    """A name for one session's files: this machine, this process, and a random part."""
    return f"{sha256_bytes(socket.gethostname().encode())[:8]}-{os.getpid()}-{secrets.token_hex(4)}"


def owner_of(name: str) -> str:
    """The owner in the name of a leftover: ``incoming/<sha256>.<owner>.part``, ``runs/<owner>``."""
    return name.rpartition("/")[2].removesuffix(".part").rpartition(".")[2]


def signature() -> str:
    """This process, for people on other machines: ``ann@laptop, process 4711``; without what a shell's echo changes."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "?"
    text = f"{user}@{socket.gethostname()}, process {os.getpid()}"
    return "".join(letter if letter.isprintable() else "?" for letter in text.replace("\\", "/"))
