"""Which mirror of Debian this machine already uses, and which keys it trusts for it.

Read from the system's own apt configuration, so that no host is named here. Both formats are understood
(sources.list(5)): one-line ``.list`` files and deb822 ``.sources`` files.
"""

from __future__ import annotations

import contextlib
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
KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{kind}") for kind in ("gpg", "pgp"))
SUITES = frozenset(
    {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky"}
)

_LINE = re.compile(r"^deb[ \t]+(?:\[([^\]\n]*)\][ \t]+)?(\S+)[ \t]+(\S+)[ \t]+([^#\n]+)", re.MULTILINE)
_PATH = re.compile(r"(^|/)debian(\.list)?/?$")


@dataclass(frozen=True)
class Mirror:
    """Where Debian's main archive is read from, and the keyring its signatures are checked with."""

    uri: str
    keyring: Path | None
    """None: this system has no keys of Debian's; `toolchains.debian.client` gets them."""


def _is_main(uri: str, suites: str, components: str, signed_by: str) -> bool:
    """Whether an entry carries Debian's main archive.

    A third party's entry differs by its keyring, its path or its suite's name. If one is not recognised, the
    signature check refuses it later: the keyring is always Debian's.
    """
    path = urlsplit(uri).path
    if "main" not in components.split() or not SUITES.intersection(suites.split()) or "security" in path:
        return False
    if urlsplit(uri).scheme == "cdrom":
        return False
    return Path(signed_by).name.startswith("debian-") if signed_by.startswith("/") else bool(_PATH.search(path))


def in_list(text: str) -> Iterator[Mirror]:
    """The entries of a one-line-style file that carry Debian's main archive."""
    for options, uri, suite, components in _LINE.findall(text):
        signed_by = next(iter(re.findall(r"signed-by=(\S+)", options)), "")
        if _is_main(uri, suite, components, signed_by):
            yield Mirror(uri, find_keyring(signed_by))


def in_deb822(text: str) -> Iterator[Mirror]:
    """The entries of a deb822-style file that carry Debian's main archive."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = {name.lower(): value.strip() for name, value in re.findall(r"^([\w-]+):(.*)$", stanza, re.MULTILINE)}
        off = fields.get("enabled", "yes").lower() in {"no", "false", "0", "without", "off", "disable"}
        uri, signed_by = fields.get("uris", "").partition(" ")[0], fields.get("signed-by", "")
        if "deb" not in fields.get("types", "").split() or off or not uri:
            continue
        if _is_main(uri, fields.get("suites", ""), fields.get("components", ""), signed_by):
            yield Mirror(uri, find_keyring(signed_by))


def read_sources(folder: Path = APT) -> Iterator[Mirror]:
    """All of ``sources.list`` and ``sources.list.d``; files that may not be read count as absent."""
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        kinds = {".list": in_list, ".sources": in_deb822}
        with contextlib.suppress(OSError):
            if file.suffix in kinds:
                yield from kinds[file.suffix](file.read_text(encoding="utf-8", errors="replace"))


@functools.cache
def apts_setting(name: str) -> str:
    """A setting of this system's apt, ``Acquire::http::Proxy``; empty if it has none, or no apt."""
    if not shutil.which("apt-config"):
        return ""
    said = subprocess.run(["apt-config", "shell", "found", name], capture_output=True, text=True, check=False).stdout
    return next(iter(shlex.split(said.partition("=")[2])), "")


def find_keyring(signed_by: str = "") -> Path | None:
    """The archive's keyring: what the user names, else the complete one of the system, else what its entry names.

    The complete one comes before the entry's, which may name only its own suite's keys.

    Raises:
        HostError: the file that the user names does not exist.
    """
    if own := os.environ.get(KEYRING_VARIABLE):
        if not Path(own).is_file():
            raise HostError(f"{KEYRING_VARIABLE} names {own}, which is not a file.", "", f"unset {KEYRING_VARIABLE}")
        return Path(own)
    named = [Path(signed_by)] if signed_by.startswith("/") else []
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
    if uri := os.environ.get(VARIABLE):
        return Mirror(uri, find_keyring())
    for found in read_sources():
        return found
    if uri := template_uri():
        return Mirror(uri, find_keyring())
    raise HostError(
        "This machine names no mirror of Debian's archive.",
        "no enabled entry below /etc/apt carries Debian's main component" if APT.is_dir() else "it has no apt",
        f"export {VARIABLE}=ADDRESS, the address of a Debian mirror near you: it has a folder dists",
    )


_HOST_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}


def known_arch() -> str:
    """Debian's name of this machine's architecture; empty where its programs do not run."""
    return _HOST_ARCHS.get(platform.machine().lower(), "") if platform.system() == "Linux" else ""


def host_arch() -> str:
    """Debian's name of this machine's architecture, whose programs are fetched.

    Raises:
        HostError: a machine that Debian's emulators are not built for, or not Linux.
    """
    if not (arch := known_arch()):
        raise HostError(
            f"Debian's programs do not run on {platform.system()} on {platform.machine().lower()}.",
            "emulators, virtual devices and Wine come from Debian, for Linux on x86_64 and aarch64",
            "run Slipway on Linux, in a container or a virtual machine (docs/build.md)",
        )
    return arch
