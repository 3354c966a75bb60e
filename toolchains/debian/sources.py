"""Which mirror of Debian this machine already uses, and which keys it trusts for it.

Read from the system's own apt configuration, so that no host is named here. Both formats are understood
(sources.list(5)): one-line ``.list`` files and deb822 ``.sources`` files.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.errors import HostError

VARIABLE = "SLIPWAY_DEBIAN_MIRROR"
"""Environment variable that names the mirror where the system's own configuration names none."""

KEYRING_VARIABLE = "SLIPWAY_DEBIAN_KEYRING"
"""Environment variable that names a file with Debian's keys, instead of the system's or the archive's own."""

APT = Path("/etc/apt")
TEMPLATE = Path("/usr/share/python-apt/templates/Debian.info")
"""Ubuntu's and other relatives' own note of Debian's archive (package python-apt-common)."""
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)
SUITES = frozenset(
    {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky"}
)

_OPTIONS = re.compile(r"^\s*\[(?P<options>[^\]]*)\]")
_DEBIAN_PATH = re.compile(r"(^|/)debian(/|\.list$|$)")


@dataclass(frozen=True)
class Source:
    """One entry of apt's configuration."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    """A keyring's path, fingerprints, or ``inline`` for a key written into the entry."""


@dataclass(frozen=True)
class Mirror:
    """Where Debian's main archive is read from, and the keyring its signatures are checked with."""

    uris: tuple[str, ...]
    keyring: Path | None
    """None: this system has no keys of Debian's; `toolchains.debian.release` gets them."""


def parse_list(text: str) -> Iterator[Source]:
    """Entries of a one-line-style file; ``deb-src`` and broken lines are left out."""
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        if not re.match(r"deb\s", line):
            continue
        rest = line[3:].strip()
        signed_by = ""
        if match := _OPTIONS.match(rest):
            for option in match["options"].split():
                key, _, value = option.partition("=")
                if key.rstrip("+-").lower() == "signed-by":
                    signed_by = value
            rest = rest[match.end() :]
        words = rest.split()
        if len(words) >= 3:
            yield Source((words[0],), (words[1],), tuple(words[2:]), signed_by)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    key = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, key = {}, ""
        elif line[0] in " \t":
            if key:
                fields[key] += "\n" + line.strip()
        else:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()


def parse_deb822(text: str) -> Iterator[Source]:
    """Entries of a deb822-style file; disabled stanzas and those without ``deb`` are left out."""
    for fields in _stanzas(text):
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").lower() in {"no", "false", "0", "without", "off", "disable"}:
            continue
        signed_by = fields.get("signed-by", "")
        yield Source(
            tuple(fields.get("uris", "").split()),
            tuple(fields.get("suites", "").split()),
            tuple(fields.get("components", "").split()),
            "inline" if "BEGIN PGP" in signed_by else signed_by,
        )


def read_sources(folder: Path = APT) -> list[Source]:
    """All entries of ``sources.list`` and ``sources.list.d``; files that may not be read count as absent."""
    found: list[Source] = []
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if file.suffix == ".list":
            found.extend(parse_list(text))
        elif file.suffix == ".sources":
            found.extend(parse_deb822(text))
    return found


def _score(source: Source, codename: str) -> int:
    """How surely an entry is Debian's main archive; 0 when it is not.

    A third party's entry differs by its keyring, its path or its suite's name. If one is not recognised, the
    signature check refuses it later: the keyring is always Debian's.
    """
    suites = SUITES.intersection(source.suites) or ({codename} & set(source.suites) & SUITES)
    if "main" not in source.components or not suites or not source.uris:
        return 0
    path = urlsplit(source.uris[0]).path.rstrip("/")
    if urlsplit(source.uris[0]).scheme == "cdrom" or "security" in path:
        return 0
    keyring = Path(source.signed_by.split()[0]).name if source.signed_by.startswith("/") else ""
    if keyring and not keyring.startswith("debian-"):
        return 0
    if not keyring and not _DEBIAN_PATH.search(path):
        return 0
    return 1 + 8 * bool(keyring) + 4 * (path == "/debian") + 2 * (codename in source.suites)


def system_codename(release: Path = Path("/etc/os-release")) -> str:
    """``VERSION_CODENAME`` of this system, or nothing."""
    try:
        text = release.read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', text, re.MULTILINE)
    return match[1] if match else ""


def choose(sources: list[Source], codename: str) -> Source | None:
    """The entry that carries Debian's main archive, or ``None``."""
    best = max(sources, key=lambda source: _score(source, codename), default=None)
    return best if best is not None and _score(best, codename) else None


@functools.cache
def apts_setting(name: str) -> str:
    """A setting of this system's apt, ``Acquire::http::Proxy``; empty if it has none, or no apt."""
    if not shutil.which("apt-config"):
        return ""
    said = subprocess.run(["apt-config", "shell", "found", name], capture_output=True, text=True, check=False).stdout
    return next(iter(shlex.split(said.partition("=")[2])), "")


def find_keyring(source: Source | None = None) -> Path | None:
    """The archive's keyring: what the user names, else the complete one of the system, else what the entry names.

    The complete one comes before the entry's, which may name only its own suite's keys.

    Raises:
        HostError: the file that the user names does not exist.
    """
    if own := os.environ.get(KEYRING_VARIABLE):
        if not Path(own).is_file():
            raise HostError(f"{KEYRING_VARIABLE} names {own}, which is not a file.", "", f"unset {KEYRING_VARIABLE}")
        return Path(own)
    named = [Path(word) for word in source.signed_by.split() if word.startswith("/")] if source else []
    return next((keyring for keyring in (*KEYRINGS, *named) if keyring.is_file()), None)


def template_uri() -> str:
    """The archive's address as a relative of Debian notes it in its own files; empty if it does not."""
    try:
        text = TEMPLATE.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    uris = re.findall(r"^BaseURI: *(\S+)$", text, re.MULTILINE)
    return next((uri for uri in uris if urlsplit(uri).path.rstrip("/") == "/debian"), "")


def find_mirror() -> Mirror:
    """The mirror to use: ``SLIPWAY_DEBIAN_MIRROR``, else the one that this system's own files name.

    Raises:
        HostError: none is named.
    """
    if mirror := os.environ.get(VARIABLE):
        return Mirror((mirror,), find_keyring())
    source = choose(read_sources(), system_codename())
    if source is not None:
        return Mirror(source.uris, find_keyring(source))
    if uri := template_uri():
        return Mirror((uri,), find_keyring())
    raise HostError(
        "This machine names no mirror of Debian's archive.",
        "no enabled entry below /etc/apt carries Debian's main component" if APT.is_dir() else "it has no apt",
        f"export {VARIABLE}=ADDRESS, the address of a Debian mirror near you: it has a folder dists",
    )


_HOST_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}


def arch_of(system: str, machine: str) -> str:
    """Debian's name of a machine's architecture; empty where its programs do not run."""
    return _HOST_ARCHS.get(machine.lower(), "") if system == "Linux" else ""


def known_arch() -> str:
    """`arch_of` this machine."""
    return arch_of(platform.system(), platform.machine())


def host_arch() -> str:
    """Debian's name of this machine's architecture, whose programs are fetched.

    Raises:
        HostError: a machine that Debian's emulators are not built for, or not Linux.
    """
    arch = known_arch()
    if not arch:
        raise HostError(
            f"Debian's programs do not run on {platform.system()} on {platform.machine().lower()}.",
            "emulators, virtual devices and Wine come from Debian, for Linux on x86_64 and aarch64",
            "run Slipway on Linux, in a container or a virtual machine (docs/build.md)",
        )
    return arch
