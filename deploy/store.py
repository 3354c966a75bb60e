"""The device's side of files: a content-addressed store, bundles and run folders linked from it.

Below the device's root::

    incoming/<sha256>.<owner>.part   on its way; nothing reads it
    store/<sha256>                   whole and verified on the device; read-only
    bundles/<digest>/bin, lib        hard links into the store (copies where links are refused)
    runs/<owner>/                    one run: inputs linked, outputs, gone afterwards

A blob gets its final name only after the device itself computed the right SHA-256 of it, so a name in
``store`` is proof; the size is looked at again to notice what a power cut did. ``<owner>`` names the process
on this side that made a thing, so that whoever comes next removes what a dead one left, and only that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import DeviceFullError, SlipwayError, TransferError
from deploy.deadline import Deadline
from deploy.remote_scripts import ARRANGE, COMMIT, DISCARD, KEEP, PREPARE, SURVEY
from deploy.transport import Completed, Transport, run, uninterrupted

if TYPE_CHECKING:
    from typing_extensions import Self

BATCH = 8 << 20
"""Bytes after which uploaded blobs are verified and named, so that a break loses at most so much."""

_OWNER = re.compile(r"(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{8}")
_active: set[str] = set()


@dataclass(frozen=True)
class Blob:
    """A file that the device shall have."""

    source: Path
    sha256: str
    size: int
    executable: bool = False


@dataclass
class Uploaded:
    """What an upload moved, and what it found there already."""

    files: int = 0
    bytes: int = 0
    present_files: int = 0
    present_bytes: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Survey:
    """What is on the device: paths below the root with their sizes, and what dead owners left there."""

    sizes: Mapping[str, int]
    stale: tuple[str, ...]


def _host_mark() -> str:
    """Eight hex digits for "processes whose numbers mean something here": host, boot and pid namespace."""
    parts = [socket.gethostname(), str(os.getuid()) if hasattr(os, "getuid") else ""]
    for file in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with contextlib.suppress(OSError):
            parts.append(Path(file).read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def new_owner() -> str:
    """A name for what one `Store` makes: this machine, this process, and a random part."""
    return f"{_host_mark()}-{os.getpid()}-{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether ``owner`` was of this machine and is no more. Another machine's is never called dead."""
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


class Store:
    """The folder ``root`` on the device behind ``transport``, for one deploy."""

    def __init__(self, transport: Transport, root: str) -> None:
        self._transport = transport
        self.root = root
        self.owner = new_owner()
        _active.add(self.owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _active.discard(self.owner)

    @property
    def run_folder(self) -> str:
        """The run's folder, absolute on the device."""
        return f"{self.root}/runs/{self.owner}"

    @property
    def pidfile(self) -> str:
        """Where the run's process group is noted on the device."""
        return f"{self.run_folder}/.pid"

    def path(self, name: str) -> str:
        """Absolute path on the device of ``name`` below the root."""
        return f"{self.root}/{name}"

    def survey(self, names: Iterable[str], deadline: Deadline) -> Survey:
        """Sizes of those of ``names`` (below the root) that exist; one round trip."""
        done = self._script(SURVEY, names, deadline, "looking at what is there")
        sizes: dict[str, int] = {}
        owned: list[str] = []
        for line in done.text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "leftover":
                owned.append(rest)
            elif kind.isdigit():
                sizes[rest] = int(kind)
        stale = [name for name in owned if is_dead(name.rpartition("/")[2].removesuffix(".part").rpartition(".")[2])]
        return Survey(sizes, tuple(stale))

    def discard(self, names: Iterable[str], deadline: Deadline) -> None:
        """Remove files and folders below the root; of run folders, the processes first."""
        if names := list(names):
            self._script(DISCARD, names, deadline, "cleaning up")

    def keep(self, deadline: Deadline) -> None:
        """Leave the run's folder on the device under a name that no later deploy removes."""
        self._script(KEEP, [self.owner], deadline, "keeping the run's folder")

    def abandon(self, deadline: Deadline) -> None:
        """After a failure: remove whatever of this owner's is not whole, as far as the device can be reached."""
        with uninterrupted(), contextlib.suppress(SlipwayError):
            found = self._script(SURVEY, [], deadline, "cleaning up").text
            mine = [
                line.removeprefix("leftover ")
                for line in found.splitlines()
                if line.startswith("leftover ") and self.owner in line
            ]
            self.discard(mine, deadline)

    def upload(self, blobs: Iterable[Blob], progress: Callable[[int], None], deadline: Deadline) -> None:
        """Put ``blobs`` into the store: temporary name, SHA-256 on the device, fsync, rename.

        Raises:
            DeviceFullError, TransferError, UnreachableError; no partial file has a final name then.
        """
        self._script(PREPARE, [], deadline, "making the store's folders")
        batch: list[Blob] = []
        for blob in blobs:
            self._transport.put(blob.source, self._part(blob), progress, deadline)
            batch.append(blob)
            if sum(each.size for each in batch) >= BATCH:
                self._commit(batch, deadline)
                batch = []
        if batch:
            self._commit(batch, deadline)

    def arrange(self, folder: str, files: Mapping[str, Blob], deadline: Deadline) -> None:
        """Make ``folder`` (below the root) hold ``files`` (by path in it) from the store; whole or not at all."""
        words = [folder, f"{folder.rpartition('/')[0]}/.{folder.rpartition('/')[2]}.{self.owner}.part"]
        for path, blob in files.items():
            words += [blob.sha256, path, "555" if blob.executable else "444"]
        self._script(ARRANGE, words, deadline, f"arranging {folder.partition('/')[0]}")

    def _part(self, blob: Blob) -> str:
        return f"{self.root}/incoming/{blob.sha256}.{self.owner}.part"

    def _commit(self, blobs: list[Blob], deadline: Deadline) -> None:
        words = [word for blob in blobs for word in (blob.sha256, "555" if blob.executable else "444")]
        done = self._script(COMMIT, [self.owner, *words], deadline, "verifying the upload")
        answers = dict(line.rpartition(" ")[::2] for line in done.text.splitlines())
        for blob in blobs:
            got = answers.get(blob.sha256, "nothing")
            if got != blob.sha256:
                raise TransferError(
                    f"{blob.source.name} arrived damaged on {self._transport.name}: SHA-256 {got[:16]}…, "
                    f"not {blob.sha256[:16]}….",
                    "the file changed on the way, while it was read, or on a failing disk; it was not kept",
                    "the same command again",
                    (blob.source.name,),
                )

    def _script(self, script: str, words: Iterable[str], deadline: Deadline, doing: str) -> Completed:
        done = run(
            self._transport,
            ["sh", "-c", script, "slipway", self.root, *words],
            deadline=deadline,
            check=False,
            doing=f"{doing} on {self._transport.name}",
        )
        if done.code == 0:
            return done
        if "no space" in done.message.lower() or "quota" in done.message.lower():
            raise DeviceFullError(
                f"No space left on {self._transport.name} while {doing}.",
                done.message,
                "free some space there, or set another root for the device in devices.toml",
            )
        raise TransferError(
            f"{self._transport.name} failed while {doing} in {self.root} (exit {done.code}).",
            done.message,
            "see that the folder belongs to the login's user, or set another root in devices.toml",
        )
