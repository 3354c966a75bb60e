"""The device's side of files: a content-addressed store, bundles and run folders linked from it.

Below the device's root::

    incoming/<sha256>.<owner>.part   being uploaded; nothing reads it; an interrupted upload resumes here
    store/<sha256>                   complete and verified on the device; read-only
    bundles/<digest>/bin, lib        hard links into the store (copies if links are refused), and SHA256SUMS
    programs/<digest>/               a program with its inputs, in the same way
    current/<target>-<engine>        link to the last bundle that ran well; previous/ the one before it
    weights/<sha256>.<target>-<engine>  packed weights of a program, which the runner keeps (`deploy.run.job`)
    runs/<owner>/                    one run: its outputs, gone afterwards
    lock/<number>                    the session that uses the device (`deploy.store.lock`)
    .slipway-root                    the marker of a root that is ours (`deploy.devices.probe`)

A blob gets its final name only after the device itself computed the right SHA-256 of it (or, if the device lacks a
program for that, after it was read back and compared). So a blob was right when it got its name; `deploy.store.vouch`
says when it is checked again. ``<owner>`` names the session on this side that made a file, so that the next session
knows what is not its own. The store is used under the device's lock.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import DeadlineError, DeviceBusyError, TransferError
from core.files import sha256_file
from deploy.devices.probe import arguments, parse, probe
from deploy.scripts import script
from deploy.store.lock import DeviceLock, new_owner, owner_of, trouble
from deploy.transport.base import Completed, Transport, run, uninterrupted
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import LISTING, natural

if TYPE_CHECKING:
    from core.formats.bundle import Needs
    from deploy.devices.facts import DeviceFacts

BATCH = 8 << 20
"""Bytes after which uploaded blobs are verified and named, so that a break loses no more."""

WORDS = 2200
"""Bytes of words in one command: with the scripts they must stay below the 9,000 that dropbear accepts."""
_FEW = 1000
"""The same for the longest script, which probes, locks and surveys at once."""

_LEFT = re.compile(r"(incoming|runs|bundles|programs|weights)/[^\s/]+")
_LOOK = re.compile(r"size ([0-9]{1,19}) ([0-9]{1,20}:[-+:. 0-9]{1,100}); (.+)")


@dataclass(frozen=True)
class Blob:
    """A file that the device must have."""

    source: Path
    sha256: str
    size: int
    executable: bool = False

    @classmethod
    def of(cls, file: Path, sha256: str = "", executable: bool = False) -> Blob:
        """A file as it is now; its digest is computed if it is not given."""
        return cls(file.resolve(), sha256 or sha256_file(file), file.stat().st_size, executable)

    @property
    def mode(self) -> str:
        """Its permissions on the device."""
        return "555" if self.executable else "444"


@dataclass(frozen=True)
class Look:
    """A file's state on the device, without its content."""

    size: int
    stamp: str
    """Inode, and the last change of its bytes and of itself: a text that changes whenever the bytes change."""


@dataclass(frozen=True)
class Survey:
    """The files on the device, by paths below the root."""

    looks: Mapping[str, Look] = field(default_factory=dict)
    """The requested ones that exist."""
    left: tuple[str, ...] = ()
    """Unfinished files and run folders, of any session."""
    stale: tuple[str, ...] = ()
    """Those of ``left`` that are other sessions': while we hold the lock, all of their unfinished work is abandoned."""
    current: Mapping[str, str] = field(default_factory=dict)
    """Target and engine to the digest of the bundle their link points to."""
    usage: int = 0
    """Bytes of everything below the root; 0 if not requested, since it takes a walk through all files."""

    def has(self, name: str, blob: Blob) -> bool:
        """Whether ``name`` exists and is as long as ``blob``."""
        return name in self.looks and self.looks[name].size == blob.size


class Store(AbstractContextManager["Store"]):
    """The folder ``root`` on the device behind ``transport``, for one session."""

    def __init__(self, transport: Transport, root: str) -> None:
        self.transport = transport
        self.owner = new_owner()
        self.lock = DeviceLock(transport, root, self.owner)
        self._left: tuple[str, ...] = ()

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """Give the device back. A transfer that ran out of time resumes here the next time; others are removed."""
        with uninterrupted():
            self.lock.release(tidy=error is not None and not isinstance(error, DeadlineError))

    @property
    def root(self) -> str:
        """As configured; absolute after the first answer of the device."""
        return self.lock.root

    @property
    def run_folder(self) -> str:
        """The run's folder, absolute on the device."""
        return f"{self.root}/runs/{self.owner}"

    @property
    def pidfile(self) -> str:
        """The file on the device with the run's process group."""
        return f"{self.run_folder}/.pid"

    def path(self, name: str) -> str:
        """Absolute path on the device of ``name`` below the root."""
        return f"{self.root}/{name}"

    def ask(
        self, names: Iterable[str], needs: Needs | None, deadline: Deadline
    ) -> tuple[DeviceFacts, str, Survey | None]:
        """Probe the device for ``needs``, lock it, and survey ``names`` (below the root): in one round trip.

        Returns:
            The facts; ``acquired``, ``busy`` or ``absent`` (then nothing was touched); the survey, when acquired.

        Raises:
            RootError: the root is not ours. UnreachableError, TransferError, DeviceFullError.
        """
        first, *others = _pieces(([name] for name in names), _FEW) or [[]]
        question = arguments(self.root, needs)
        if self.lock.fits(first, question):
            answer = self.lock.attempt(first, deadline, question=question)
            facts = parse(answer.probed)
            self.lock.root = facts.root
        else:  # one trip more
            facts = probe(self.transport, self.root, needs, deadline)
            self.lock.root = facts.root
            answer = self.lock.attempt(first, deadline)
        found = self._completed(self._parse(answer.lines), others, deadline) if answer.kind == "acquired" else None
        return facts, answer.kind, found

    def _completed(self, found: Survey, others: Sequence[Sequence[str]], deadline: Deadline) -> Survey:
        """The survey, completed with the names that its first command had no room for."""
        if not others:
            return found
        more = self.survey([name for words in others for name in words], deadline)
        return Survey({**found.looks, **more.looks}, more.left, more.stale, more.current, more.usage)

    def open(
        self,
        names: Iterable[str],
        deadline: Deadline,
        *,
        wait: float = 0.0,
        make: bool = False,
        waiting: Callable[[str], None] | None = None,
    ) -> Survey | None:
        """Lock the device for this session and list the files that it has, in one round trip.

        Args:
            make: make the root if it is missing.
            waiting: called once with the lock's holder, if the lock is held.

        Returns:
            ``None`` if the root does not exist yet (and ``make`` is not set); then nothing was touched.

        Raises:
            DeviceBusyError: another session holds the device for longer than ``wait`` seconds.
            RootError: the root is not ours. UnreachableError, TransferError, DeviceFullError.
        """
        first, *others = _pieces([name] for name in names) or [[]]
        patience, pause = Deadline.after(wait), 0.4
        while (answer := self.lock.attempt(first, deadline, make=make)).kind == "busy":
            if patience.over or deadline.over:
                by = answer.who or "another deploy"
                raise DeviceBusyError(
                    f"{self.transport.name} is in use by {by}.",
                    f"waited for {wait:.0f} s" if wait else "one deploy at a time may use a device",
                    "a longer INVOKE_SLIPWAY_WAIT=SECONDS, for devices.run INVOKE_SLIPWAY_TIMEOUT=SECONDS",
                    (by,),
                )
            if waiting is not None:
                waiting(answer.who)
                waiting = None
            time.sleep(min(patience.left(pause), deadline.left()) * random.uniform(0.7, 1.0))  # noqa: S311 - not a secret
            pause = min(pause * 1.6, 5.0)
        return None if answer.kind == "absent" else self._completed(self._parse(answer.lines), others, deadline)

    def survey(self, names: Iterable[str], deadline: Deadline) -> Survey:
        """The survey of those of ``names`` (below the root) that exist."""
        lines: list[str] = []
        for words in _pieces([name] for name in names) or [[]]:
            lines += self.command("survey", words, deadline, "listing the device's files").text.splitlines()
        return self._parse(lines)

    def _parse(self, lines: Iterable[str]) -> Survey:
        lines = list(lines)
        left: list[str] = []
        current: dict[str, str] = {}
        usage = 0
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "leftover" and _LEFT.fullmatch(rest):
                left.append(rest)
            elif kind.startswith("current/"):
                current[kind.removeprefix("current/")] = rest.rpartition("/")[2]
            elif kind == "usage":
                usage = (natural((rest.split() or [""])[0]) or 0) * 1024
        self._left = tuple(dict.fromkeys(left))
        stale = tuple(name for name in self._left if self.lock.held and owner_of(name) != self.owner)
        return Survey(_looks(lines), self._left, stale, current, usage)

    def discard(self, names: Iterable[str], deadline: Deadline) -> None:
        """Remove files and folders below the root; of run folders, the processes first."""
        for words in _pieces([name] for name in names):
            self.command("discard", words, deadline, "cleaning up")

    def upload(self, blobs: Iterable[Blob], progress: Callable[[int], None], deadline: Deadline) -> int:
        """Put ``blobs`` into the store, which is open: temporary name, SHA-256 on the device, fsync, rename.

        If an interrupted upload left the beginning of a file, and the device's own digest of it is that of the same
        bytes here, the upload resumes after it. Gives the bytes that were not sent again; ``progress`` counts them too.

        Raises:
            DeviceFullError, TransferError, UnreachableError; partial files never have a final name.
        """
        blobs = list(blobs)
        begun = self._begun(blobs, deadline)
        batch: list[Blob] = []
        for blob in blobs:
            offset = begun.get(blob.sha256, 0)
            if offset:
                progress(offset)
            if offset < blob.size or not offset:
                self.transport.put(blob.source, self._part(blob), progress, deadline, offset)
            batch.append(blob)
            if sum(each.size for each in batch) >= BATCH:
                self._commit(batch, deadline)
                batch = []
        if batch:
            self._commit(batch, deadline)
        return sum(begun.values())

    def _begun(self, blobs: Sequence[Blob], deadline: Deadline) -> dict[str, int]:
        """How many bytes of each are on the device, verified."""
        parts = " ".join(self._left)
        resumable = {blob.sha256: blob for blob in blobs if f"incoming/{blob.sha256}." in parts}
        begun: dict[str, int] = {}
        wrong: list[str] = []
        for words in _pieces([blob.sha256, str(blob.size)] for blob in resumable.values()):
            done = self.command("resume", [self.owner, *words], deadline, "looking for interrupted uploads")
            for line in done.text.splitlines():
                sha256, number, digest = (line.split() + ["", "", ""])[:3]
                begins = natural(number)
                if sha256 in resumable and begins is not None:
                    size = min(begins, resumable[sha256].size)
                    if sha256_file(resumable[sha256].source, size) == digest:
                        begun[sha256] = size
                    else:
                        wrong.append(f"incoming/{sha256}.{self.owner}.part")
        self.discard(wrong, deadline)  # a file is created anew, never overwritten
        return begun

    def arrange(self, folder: str, files: Mapping[str, Blob], deadline: Deadline) -> dict[str, Look]:
        """Make ``folder`` (below the root) hold ``files`` (by path in it) from the store; completely or not at all.

        Returns:
            Paths below the root of those that are the store's own files, not copies of them, with their looks.
        """
        temporary = f"{folder.rpartition('/')[0]}/.{folder.rpartition('/')[2]}.{self.owner}.part"
        pieces = _pieces([blob.sha256, path, blob.mode] for path, blob in files.items())
        for index, words in enumerate(pieces):
            ends = ["yes" if index == 0 else "no", "yes" if index == len(pieces) - 1 else "no"]
            doing = f"arranging {folder.partition('/')[0]}"
            done = self.command("arrange", [folder, temporary, *ends, *words], deadline, doing)
        return _looks(done.text.splitlines()) if pieces else {}

    def verify(self, names: Iterable[str], deadline: Deadline) -> dict[str, tuple[str, Look]]:
        """Have the device compute the SHA-256 of files below the root; if it cannot, read them back.

        Returns:
            For those of ``names`` that are files: SHA-256 and the look before it was computed.
        """
        found: dict[str, tuple[str, Look]] = {}
        for words in _pieces([name] for name in names):
            lines = self.command("verify", words, deadline, "computing digests").text.splitlines()
            looks = _looks(lines)
            for line in lines:
                kind, _, rest = line.partition(" ")
                digest, _, name = rest.partition(" ")
                if kind == "digest" and name in looks:
                    if digest == "unable":
                        digest = self._fetched_digest(name, looks[name].size, deadline)
                    found[name] = (digest, looks[name])
        return found

    def _fetched_digest(self, name: str, size: int, deadline: Deadline) -> str:
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "file"
            self.transport.get(self.path(name), local, size + 1, deadline)
            return sha256_file(local)

    def flip(self, key: str, digest: str, deadline: Deadline) -> None:
        """Let ``current/<key>`` be the bundle ``digest``, and ``previous/<key>`` the one that it was."""
        self.command("flip", [key, digest], deadline, "pointing to the bundle")

    def _part(self, blob: Blob) -> str:
        return f"{self.root}/incoming/{blob.sha256}.{self.owner}.part"

    def _commit(self, blobs: list[Blob], deadline: Deadline) -> None:
        self.lock.check()
        answers: dict[str, str] = {}
        for words in _pieces([blob.sha256, blob.mode] for blob in blobs):
            done = self.command("commit", [self.owner, "no", *words], deadline, "verifying the upload")
            answers.update(line.rpartition(" ")[::2] for line in done.text.splitlines())
        unable = [blob for blob in blobs if answers.get(blob.sha256) == "unable"]
        answers.update(self._read_back(unable, deadline))
        for blob in blobs:
            got = answers.get(blob.sha256, "nothing")
            if got != blob.sha256:
                raise TransferError(
                    f"{blob.source.name} arrived damaged on {self.transport.name}: SHA-256 {got[:16]}…, "
                    f"not {blob.sha256[:16]}….",
                    "the file changed on the way, while it was read, or on a failing disk; it was not kept",
                    "the same command again",
                    (blob.source.name,),
                )

    def _read_back(self, blobs: Sequence[Blob], deadline: Deadline) -> dict[str, str]:
        """For devices that cannot compute SHA-256: read the upload back, compare it, and have it named or removed."""
        parts = {blob.sha256: self._part(blob).removeprefix(f"{self.root}/") for blob in blobs}
        answers = {blob.sha256: self._fetched_digest(parts[blob.sha256], blob.size, deadline) for blob in blobs}
        good = [blob for blob in blobs if answers[blob.sha256] == blob.sha256]
        for words in _pieces([blob.sha256, blob.mode] for blob in good):
            self.command("commit", [self.owner, "yes", *words], deadline, "naming what was verified")
        self.discard([parts[blob.sha256] for blob in blobs if blob not in good], deadline)
        return answers

    def command(self, name: str, words: Iterable[str], deadline: Deadline, doing: str) -> Completed:
        """Run a command of `deploy.scripts`; the root comes before its ``words``.

        Raises:
            DeviceFullError, TransferError: the script failed.
            UnreachableError, DeadlineError: see `deploy.transport.base.run`.
        """
        there = self.transport.name
        argv = ["sh", "-c", script(name), "slipway", self.root, *words]
        done = run(self.transport, argv, deadline=deadline, check=False, doing=f"{doing} on {there}", most=LISTING)
        if done.code != 0:
            raise trouble(there, doing, self.root, done.code, done.message)
        return done


def _looks(lines: Iterable[str]) -> dict[str, Look]:
    matches = (_LOOK.fullmatch(line) for line in lines)
    return {match[3]: Look(int(match[1]), match[2]) for match in matches if match}


def _pieces(groups: Iterable[Sequence[str]], most: int = WORDS) -> list[list[str]]:
    """The words of ``groups`` in lists short enough for one command each; a group stays together."""
    pieces: list[list[str]] = []
    room = 0
    for group in groups:
        length = sum(len(word) + 3 for word in group)
        if not pieces or length > room:
            pieces.append([])
            room = most
        pieces[-1] += group
        room -= length
    return pieces
