"""apt with a state of its own: no root, nothing of the system's package state read or changed.

From the system come only the mirror, the archive's keys and the ``Acquire`` settings (proxies, certificates,
timeouts). Signatures are always checked; settings that would allow unsigned archives are not taken over.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote as quote_path
from urllib.parse import unquote

from core.commands import need, process, quote, run
from core.console import step
from core.errors import HostError
from core.files import write_atomic
from core.output import EDGE, read_back
from core.paths import cache_dir
from toolchains.debian.sources import find_mirror

FRESH_SECONDS = 7 * 24 * 3600
"""Lists older than this are read again before something is downloaded."""

NOT_DEBIAN = (
    "install what your distribution offers instead: qemu-user (8 or newer), qemu-system for Arm, and a GNU cross "
    "compiler with its sysroot; or run Slipway in a Debian container"
)

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


class AptError(HostError):
    """apt failed; ``transient``: may succeed when tried again, ``absent``: the lists lack it or are out of date."""

    def __init__(self, what: str, cause: str, hint: str, output: str) -> None:
        super().__init__(what, cause, hint)
        self.retry = bool(_TRANSIENT.search(output))
        self.absent = bool(_ABSENT.search(output))
        self.half_updated = bool(_HALF_UPDATED.search(output))


@dataclass(frozen=True)
class Item:
    """One file apt would download, as ``--print-uris`` lists it."""

    uri: str
    name: str
    size: int
    sha256: str

    @property
    def spec(self) -> str:
        """``package=version``, which names this file to ``apt-get download``."""
        package, version, _ = self.name.removesuffix(".deb").split("_", 2)
        return f"{package}={unquote(version)}"


def parse_uris(text: str) -> list[Item]:
    """Lines of ``--print-uris``; the digest is empty where apt prints a weaker one than SHA-256."""
    items = []
    for match in re.finditer(r"^'([^']+)' (\S+) (\d+) ?(\S*)$", text, re.MULTILINE):
        uri, name, size, digest = match.groups()
        items.append(Item(uri, name, int(size), digest.removeprefix("SHA256:") if digest.startswith("SHA256:") else ""))
    return items


def why_unusable() -> str:
    """Why apt cannot be used on this machine; empty if it can."""
    try:
        require()
        find_mirror()
    except HostError as error:
        return f"{error.what} {error.cause}"
    return ""


def require() -> None:
    """Raise the `HostError` with a way out if apt cannot be used."""
    missing = [program for program in ("apt-get", "apt-config", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise HostError(
            "Debian packages are not available on this machine.",
            f"it is not Debian-like: {', '.join(missing)} not installed",
            NOT_DEBIAN,
        )


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
class Apt:
    """apt for one suite and architecture. Callers hold the lock ``debian-<suite>-<arch>``."""

    suite: str
    arch: str
    sources: bool = False
    """Read the list of source packages instead of that of binary ones."""

    @property
    def folder(self) -> Path:
        """This state's folder in the cache."""
        return cache_dir("debian", f"{self.suite}-{'source' if self.sources else self.arch}")

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
            f"Components: main\nArchitectures: {self.arch}\nSigned-By: {mirror.keyring}\n",
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
            "APT::Architecture": self.arch,
            "APT::Architectures": self.arch,
            "APT::Install-Recommends": "false",
            # Only root's apt changes user, to one that may not write here.
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            "Acquire::Retries": "1",
            "Debug::NoLocking": "true",
        }
        lines = [f'{key} "{value}";' for key, value in settings.items()] + _acquire_settings()
        write_atomic(folder / "apt.conf", "\n".join(lines) + "\n")

    def _run(self, words: Sequence[str], cwd: Path, what: str, watch: Callable[[], None] | None = None) -> str:
        argv = [need("apt-get", NOT_DEBIAN), "-q", *words]
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
            _retrying(lambda: self._run(["update"], self.folder, f"Reading Debian {self.suite}'s list of packages"))
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

    def download_pinned(self, filename: str, sha256: str, folder: Path, newest: Item | None = None) -> Path:
        """Download a file whose digest is known, while apt refuses the list of packages or knows only ``newest``.

        A mirror in the middle of its update has signed digests of lists that it has not got yet. The list is read
        unsigned here, only for the folder of the file in the archive.
        """
        package, version, arch = filename.removesuffix(".deb").split("_")
        if newest is not None:
            # Names in the archive lack the version's epoch.
            name = f"{package}_{unquote(version).rpartition(':')[2]}_{arch}.deb"
            uri = f"{newest.uri.rpartition('/')[0]}/{quote_path(name)}"
            self._help([uri, str(folder / filename), f"SHA256:{sha256}"], folder)
            return folder / filename
        mirror = find_mirror().uris[0].rstrip("/")
        packages = folder / "Packages.xz"
        self._help([f"{mirror}/dists/{self.suite}/main/binary-{self.arch}/Packages.xz", str(packages)], folder)
        with lzma.open(packages, "rt", encoding="utf-8") as text:
            for stanza in text.read().split("\n\n"):
                fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"\S+: ", line))
                if fields.get("Package") == package and fields.get("Version") == unquote(version):
                    words = [f"{mirror}/{quote_path(fields['Filename'])}", str(folder / filename), f"SHA256:{sha256}"]
                    self._help(words, folder)
                    return folder / filename
        raise AptError(f"{self.suite}'s list has no {filename}.", "", "the same command again", "404  Not Found")

    def _help(self, words: Sequence[str], folder: Path) -> None:
        argv = ["/usr/lib/apt/apt-helper", "download-file", *words]
        done = subprocess.run(
            argv, cwd=folder, env=_environment(self.folder / "apt.conf"), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise self._error(argv, f"Downloading {words[0]}", done.stderr or done.stdout)

    def plan_source(self, package: str) -> list[Item]:
        """Upstream's tarballs of a source package."""
        self._configure()
        what = f"Looking up the source of {package} in Debian {self.suite}"
        return parse_uris(self._run(["source", "--tar-only", "--print-uris", package], self.folder, what))

    def download_source(self, package: str, items: Sequence[Item], folder: Path) -> None:
        """Download upstream's tarballs of a source package into ``folder``."""
        self._fetch(["source", "--tar-only", "--download-only", package], items, folder)

    def _fetch(self, words: Sequence[str], items: Sequence[Item], folder: Path) -> None:
        count = f"{len(items)} packages" if len(items) > 1 else items[0].name.split("_")[0]
        total = sum(item.size for item in items)
        with step(f"downloading {count} (Debian {self.suite})", announce=False) as shown:

            def watch() -> None:
                # A file may be renamed while we look.
                with contextlib.suppress(FileNotFoundError):
                    shown.bytes(sum(file.stat().st_size for file in folder.rglob("*")), total)

            _retrying(lambda: self._run(words, folder, f"Downloading {count} from Debian {self.suite}", watch))


def _retrying(step: Callable[[], object]) -> None:
    """Run ``step``; again, up to three times with growing pauses, when the network was at fault."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    transient = retry_if_exception(lambda error: isinstance(error, AptError) and error.retry)
    policy = Retrying(retry=transient, stop=stop_after_attempt(3), wait=wait_exponential(1, max=8), reraise=True)
    policy(step)
