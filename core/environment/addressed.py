"""Wheels that a lock names by their address, because no package index has them: PyTorch's CPU build.

Runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from core.environment.installer import REFUSED, Installation, explain_disk, fail, last_lines, pip_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MIRROR = "SLIPWAY_TORCH_MIRROR"
"""The variable that names another folder of these wheels, by an address that begins with http or https."""
_LINE = re.compile(r"(\S+) @ (\S+) ; (.+?) \\\n +--hash=sha256:([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Wheel:
    """One wheel for one version of Python and one kind of machine."""

    package: str
    address: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name: ``torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl``."""
        return urllib.parse.unquote(self.address.rpartition("/")[2])

    @property
    def pin(self) -> str:
        """By which a package index or a folder has it: ``torch==2.13.0+cpu``."""
        return "==".join(self.file.split("-")[:2])

    def served(self) -> str:
        """The address where it is asked for: the lock's, or the same file of `MIRROR`."""
        mirror = os.environ.get(MIRROR)
        return f"{mirror.rstrip('/')}/{self.address.rpartition('/')[2]}" if mirror else self.address

    def listed(self, file: Path) -> str:
        """The line of pip's requirements that installs it from ``file``."""
        return f"{self.package} @ {file.as_uri()} --hash=sha256:{self.sha256}\n"


def marker(system: str, machine: str, python: str) -> str:
    """The condition that a lock puts behind an address: ``marker("linux", "x86_64", "3.11")``."""
    return f"sys_platform == '{system}' and platform_machine == '{machine}' and python_version == '{python}'"


def parted(lines: str) -> tuple[str, Wheel | None]:
    """A lock's lines without those that have an address, and the one of these that is for this Python and machine.

    Raises:
        SetupError: there are addresses for this system, but none for this Python.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    mine = marker(sys.platform, platform.machine(), python)
    found = [Wheel(*match.group(1, 2, 4)) for match in _LINE.finditer(lines) if match[3] == mine]
    system = f"sys_platform == '{sys.platform}'"
    others = [match for match in _LINE.finditer(lines) if match[3].startswith(system)]
    if others and not found:
        wheel = Wheel(*others[0].group(1, 2, 4))
        fail(
            f"There is no {wheel.pin} for Python {python} on {platform.machine()}.",
            f"PyTorch's CPU builds are {', '.join(Wheel(*each.group(1, 2, 4)).file for each in others)}",
            "one of these Pythons: SLIPWAY_PYTHON=python3.11 with another SLIPWAY_VENV=FOLDER",
        )
    return _LINE.sub("", lines), found[0] if found else None


def fetch(wheel: Wheel, doing: Installation) -> Path:
    """The wheel's file: what pip's own settings give (a folder, a mirror), else what its address does.

    It stays in the environment until `done`, so that an installation that fails later does not fetch it again.

    Raises:
        SetupError: neither has it, or only other bytes.
    """
    folder = _folder(doing)
    file = folder / wheel.file
    folder.mkdir(parents=True, exist_ok=True)

    def ask(source: str) -> str:
        """What pip said; empty if it has the file."""
        listing, asked = folder / "listing.txt", folder / "asked"
        listing.write_text(f"{source} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        said = doing.pip([*pip_words(doing.python, "download"), "--dest", str(asked), "-r", str(listing)], 1)
        if said:
            explain_disk(said, folder)
        else:
            (asked / wheel.file).replace(file)
        return said

    if (
        not file.is_file()  # only checked files get this name
        and (said := ask(wheel.pin))
        and (of_address := ask(f"{wheel.package} @ {wheel.served()}"))
    ):
        _explain(wheel, said, of_address, doing.log)
    return file


def done(doing: Installation) -> None:
    """Remove what `fetch` fetched: it is installed."""
    shutil.rmtree(_folder(doing), ignore_errors=True)


def _folder(doing: Installation) -> Path:
    return doing.venv / ".slipway" / "wheels"


def _explain(wheel: Wheel, said: str, of_address: str, log: Path) -> NoReturn:
    """Raise `SetupError`: what pip's sources and the address did, and both ways out."""
    other, found = REFUSED.search(said), REFUSED.search(of_address)
    pips = f"another file of that name, SHA-256 {other[3]}" if other else "no such file"
    at = wheel.served()
    ways = f"put {wheel.address} from another machine into a folder, then PIP_FIND_LINKS=FOLDER and the same command"
    if found:
        fail(
            f"{wheel.pin} was not installed: {at} has another file than Slipway's lock names.",
            f"its SHA-256 is {found[3]}, not {wheel.sha256}; pip's own sources have {pips}; see {log}",
            f"see what is between, as a proxy; else {ways}",
        )
    why = last_lines(of_address).rpartition("ERROR: ")[2].strip()
    fail(
        f"{wheel.pin} could not be downloaded.",
        f"{at}: {why}; pip's own sources have {pips}; see {log}",
        f"the same command again once the network or the proxy (https_proxy) works. Or {ways}",
    )
