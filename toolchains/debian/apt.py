"""apt with a state of its own: no root, nothing of the system's package state read or changed.

From the system come only the mirror, the archive's keys and the ``Acquire`` settings (proxies, certificates,
timeouts). Signatures are always checked; settings that would allow unsigned archives are not taken over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.console import step
from core.files import write_atomic
from core.processes.commands import need, process, quote, run
from core.processes.output import EDGE, read_back
from toolchains.debian.client import ArchiveError, Client, Item, downloading, retrying
from toolchains.debian.keys import keyring
from toolchains.debian.sources import find_mirror

_TRANSIENT = re.compile(
    r"Temporary failure|Could not connect|Unable to connect|Connection (?:timed out|failed|reset|refused)"
    r"|timed out|Could not resolve|Hash Sum mismatch|Mirror sync in progress|unexpected size|Undetermined Error"
    r"|\b(?:429|50[0234])\b "
)
_HALF_UPDATED = re.compile(r"Mirror sync in progress|unexpected size|Hash Sum mismatch")
_NETWORK = re.compile(r"Temporary failure|Could not resolve|connect|timed out|Network is unreachable")
_ABSENT = re.compile(
    r"Unable to locate package|has no installation candidate|was not found|Unable to find a source package"
    r"|404 +Not Found|does not have a Release file|Can't select|Unable to correct problems|Couldn't find any package"
)
_UNTRUSTED = re.compile(r"NO_PUBKEY|BADSIG|EXPKEYSIG|signature|is not signed")
_FULL = re.compile(r"No space left on device|You don't have enough free space|Disk quota exceeded")

_NOT_TAKEN_OVER = re.compile(
    r"Acquire::(?:IndexTargets|Languages|GzipIndexes|CompressionTypes|AllowInsecure|AllowWeak|AllowDowngrade|Retries)",
    re.IGNORECASE,
)


class AptError(ArchiveError):
    """apt failed; ``output`` is what it said."""

    def __init__(self, what: str, cause: str, hint: str, output: str) -> None:
        super().__init__(
            what,
            cause,
            hint,
            retry=bool(_TRANSIENT.search(output)),
            absent=bool(_ABSENT.search(output)),
            half_updated=bool(_HALF_UPDATED.search(output)),
        )


def parse_uris(text: str) -> list[Item]:
    """Lines of ``--print-uris``; the digest is empty where apt prints a weaker one than SHA-256."""
    items = []
    for match in re.finditer(r"^'([^']+)' (\S+) (\d+) ?(\S*)$", text, re.MULTILINE):
        uri, name, size, digest = match.groups()
        items.append(Item(uri, name, int(size), digest.removeprefix("SHA256:") if digest.startswith("SHA256:") else ""))
    return items


def missing_programs() -> list[str]:
    """The programs of apt and dpkg that this machine lacks; without them the archive is read by `Reader`."""
    return [program for program in ("apt-get", "apt-config", "dpkg-deb") if shutil.which(program) is None]


def _acquire_settings() -> list[str]:
    dump = run(["apt-config", "dump"], env=_environment(None), what="Reading apt's configuration").stdout
    lines = [line for line in dump.splitlines() if line.startswith("Acquire::") and not _NOT_TAKEN_OVER.match(line)]
    return [line for line in lines if re.fullmatch(r'[\w:./@*-]+ "[^"]*";', line)]


def _environment(config: Path | None) -> Mapping[str, str]:
    environment = {key: value for key, value in os.environ.items() if key not in {"APT_CONFIG", "LANGUAGE"}}
    environment |= {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    if config is not None:
        environment["APT_CONFIG"] = str(config)
    return environment


@dataclass(frozen=True)
class Apt(Client):
    """Debian's archive through this system's apt."""

    def _configure(self) -> None:
        """Write the private configuration; it is read first, so it can switch the system's off.

        Written before each look-up, because the system's mirror and proxies may have changed since.
        """
        folder, mirror = self.folder, find_mirror()
        for part in ("lists/partial", "cache/archives/partial", "state", "sources.d"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").touch()
        write_atomic(
            folder / "sources.d/debian.sources",
            f"Types: {'deb-src' if self.sources else 'deb'}\nURIs: {' '.join(mirror.uris)}\nSuites: {self.suite}\n"
            f"Components: main\nArchitectures: {self.arch}\nSigned-By: {keyring(mirror)}\n",
        )
        settings = {
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": f"{folder}/sources.d",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State": f"{folder}/state",
            "Dir::State::lists": f"{folder}/lists",
            "Dir::State::status": f"{folder}/state/status",
            "Dir::Cache": f"{folder}/cache",
            "Dir::Cache::srcpkgcache": "",  # as large as the other, and read by nothing here
            "APT::Architecture": self.arch,
            "APT::Architectures": self.arch,
            "APT::Install-Recommends": "false",
            # Only root's apt changes user, to one that may not write here.
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::GzipIndexes": "true",  # lists stay compressed, a third as large, and are read as fast
            "Acquire::Languages": "none",
            "Acquire::Retries": "1",
            "Debug::NoLocking": "true",
        }
        lines = [f'{key} "{value}";' for key, value in settings.items()] + _acquire_settings()
        write_atomic(folder / "apt.conf", "\n".join(lines) + "\n")

    def _run(self, words: Sequence[str], cwd: Path, what: str, watch: Callable[[], None] | None = None) -> str:
        argv = [need("apt-get", "apt is Debian's and its relatives'"), "-q", *words]
        environment = _environment(self.folder / "apt.conf")
        # Files, not pipes: nothing reads a pipe while the download is watched.
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
            process(argv, cwd=cwd, env=environment, stdout=out.fileno(), stderr=errors.fileno()) as child,
        ):
            while True:
                try:
                    child.wait(0.1)
                    break
                except subprocess.TimeoutExpired:
                    if watch is not None:
                        watch()
            answer, whole = read_back(out)
            complaint, _ = read_back(errors, EDGE)
        if child.returncode or not whole:
            raise self._error(argv, what, complaint or answer)
        return answer

    def _error(self, argv: Sequence[str], what: str, text: str) -> AptError:
        lines = [line[3:] for line in text.splitlines() if line.startswith("E: ")] or text.splitlines()[-3:]
        cause = f"{'; '.join(lines)} ({quote(argv)})"
        hint = "the same command again; if it stays, try sudo apt-get update to see whether apt works at all here"
        if _FULL.search(text):
            hint = "free some space (./inv clean --cache removes Slipway's own cache), then the same command again"
        elif _UNTRUSTED.search(text):
            hint = "sudo apt-get install --only-upgrade debian-archive-keyring, or set SLIPWAY_DEBIAN_MIRROR"
        elif _NETWORK.search(text):
            hint = "check the network and apt's proxy settings, then the same command again"
        elif _ABSENT.search(text):
            hint = "the mirror lacks it: set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror"
        return AptError(f"{what} failed.", cause, hint, text)

    def _lists(self) -> list[Path]:
        kind = "*_Sources*" if self.sources else "*_Packages*"
        return list((self.folder / "lists").glob(kind))

    @property
    def lists_age(self) -> float:
        """Seconds since the lists were read; infinite when there are none."""
        stamp = self.folder / "lists-read"
        if not self._lists() or not stamp.is_file():
            return float("inf")
        return time.time() - stamp.stat().st_mtime

    def refresh(self) -> None:
        """Read the archive's lists again, signatures checked."""
        self._configure()
        with step(f"reading Debian {self.suite}'s list of packages ({self.arch})", "debian-lists", announce=False):
            retrying(lambda: self._run(["update"], self.folder, f"Reading Debian {self.suite}'s list of packages"))
        (self.folder / "lists-read").touch()

    def plan(self, packages: Sequence[str], closure: bool) -> list[Item]:
        """The files that are to be downloaded, with sizes and digests; touches no network."""
        what = f"Looking up {', '.join(packages)} in Debian {self.suite} ({self.arch})"
        self._configure()
        specs = list(packages)
        if closure:
            text = self._run(["install", "--yes", "--print-uris", *packages], self.folder, what)
            specs = [item.spec for item in parse_uris(text)]
        # ``install`` prints MD5 sums only; ``download`` prints SHA-256 for the same files.
        return parse_uris(self._run(["download", "--print-uris", *specs], self.folder, what))

    def download(self, items: Sequence[Item], folder: Path) -> None:
        """Download ``items`` into ``folder``; apt compares them with the signed list."""
        self._fetch(["download", *(item.spec for item in items)], items, folder)

    def _get(self, uri: str, file: Path, sha256: str = "") -> None:
        words = [uri, str(file), *([f"SHA256:{sha256}"] if sha256 else [])]
        argv = ["/usr/lib/apt/apt-helper", "download-file", *words]
        environment = _environment(self.folder / "apt.conf")
        done = subprocess.run(argv, cwd=file.parent, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self._error(argv, f"Downloading {uri}", done.stderr or done.stdout)

    def plan_source(self, package: str) -> list[Item]:
        """Upstream's tarballs of a source package."""
        self._configure()
        what = f"Looking up the source of {package} in Debian {self.suite}"
        return parse_uris(self._run(["source", "--tar-only", "--print-uris", package], self.folder, what))

    def download_source(self, _package: str, items: Sequence[Item], folder: Path) -> None:
        """Download upstream's tarballs of a source package into ``folder``."""
        self._fetch(["source", "--tar-only", "--download-only", _package], items, folder)

    def _fetch(self, words: Sequence[str], items: Sequence[Item], folder: Path) -> None:
        what = f"Downloading packages from Debian {self.suite}"
        downloading(self.suite, items, folder, lambda watch: self._run(words, folder, what, watch))
