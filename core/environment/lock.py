"""``./inv self.lock``: write ``locks/`` from the pins in ``pyproject.toml``, which stays the only source of versions.

A lock has one pin for each package and the SHA-256 of every wheel that the index offers for it to the hosts that
Slipway runs on: pip installs nothing else, from any index, mirror or folder. What the index does not have stands there
with the address of each wheel.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from core import console
from core.environment import bootstrap, ensure, installer
from core.environment.wheel import toml
from core.errors import ConfigError, HostError
from core.files import write_atomic
from core.paths import ROOT
from core.processes.commands import run

_HEAD = "# Made by ./inv self.lock from pyproject.toml: what may be installed, by SHA-256.\n"
_PYTHONS = range(10, 14)
"""Python 3.10 to 3.13, as ``./inv`` takes them (core/cli/launch.py)."""
_WHEEL = re.compile(r"(?P<name>\w+)-.*-cp3(?P<minor>\d+)-cp3\d+-manylinux_\d+_\d+_(?P<machine>\w+)\.whl")


def _pyproject() -> dict[str, Any]:
    return toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(name: str) -> list[str]:
    """The pins of a set, one of the project's extras."""
    return [str(line) for line in _pyproject()["project"]["optional-dependencies"][name]]


def builds() -> dict[str, str]:
    """Wheels that the package index does not have, as file name and SHA-256."""
    found: dict[str, str] = _pyproject()["tool"]["slipway"]["builds"]
    return found


def own_build(pin: str) -> bool:
    """Whether the pin is of a local version (``torch==2.13.0+cpu``), which is in `builds` and in no index."""
    return "+" in pin.partition(" ;")[0]


def lines_of_build(pin: str, files: dict[str, str], folder: str) -> str:
    """A lock's lines for a pin of a local version: each wheel's address, and for which Python and machine it is.

    Args:
        files: `builds`.
        folder: the address that they are below.

    Raises:
        ConfigError: ``files`` has no wheel of it.
    """
    version = pin.partition(" ;")[0].replace("==", "-") + "-"
    found = [_WHEEL.fullmatch(file) for file in sorted(files) if file.startswith(version)]
    lines = [
        f"{wheel['name']} @ {folder}{quote(wheel.string)} ; "
        f"{installer.marker('linux', wheel['machine'], '3.' + wheel['minor'])} \\\n"
        f"    --hash=sha256:{files[wheel.string]}\n"
        for wheel in found
        if wheel
    ]
    if not lines:
        raise ConfigError(f"No wheel is known for {pin}.", "", "add it to [tool.slipway.builds] in pyproject.toml")
    return "".join(lines)


def accepted() -> frozenset[str]:
    """The tags of wheels that pip installs on Linux with glibc and on macOS with Apple's processors."""
    from packaging.tags import compatible_tags, cpython_tags, mac_platforms

    linux = ["linux", "manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{n}" for n in range(5, 50))]
    platforms = [f"{name}_{machine}" for name in linux for machine in ("x86_64", "aarch64")]
    platforms += mac_platforms((26, 0), "arm64")
    found = {f"py3-none-{platform}" for platform in bootstrap.OF_ANOTHER["adb"].values()}
    for minor in _PYTHONS:
        python = (3, minor)
        tags = (*cpython_tags(python, platforms=platforms), *compatible_tags(python, f"cp3{minor}", platforms))
        found.update(map(str, tags))
    return frozenset(found)


def lines_of_index(pylock: str) -> str:
    """A lock's lines for what uv found in the index: each package's pin with the digests of the `accepted` wheels.

    Args:
        pylock: the text of a ``pylock.toml`` (PEP 751).

    Raises:
        ConfigError: a package has no such wheel.
    """
    from packaging.utils import parse_wheel_filename

    fits, text = accepted(), ""
    for package in toml(pylock)["packages"]:
        files = {unquote(one["url"].rpartition("/")[2]): one["hashes"]["sha256"] for one in package["wheels"]}
        kept = [digest for file, digest in files.items() if fits.intersection(map(str, parse_wheel_filename(file)[3]))]
        pin = f"{package['name']}=={package['version']}"
        if not kept:
            raise ConfigError(f"{pin} has no wheel for any host of Slipway.", ", ".join(files), "pin another version")
        condition = f" ; {package['marker']}" if "marker" in package else ""
        text += " \\\n    --hash=sha256:".join([pin + condition, *sorted(kept)]) + "\n"
    return text


def _compile(pins: list[str]) -> str:
    """What uv makes of ``pins``: the wheels that the index has for each, as ``pylock.toml`` lists them."""
    uv = Path(sys.prefix) / "bin" / "uv"
    # The user's settings add no other index: a lock is made from the package index alone.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    with tempfile.TemporaryDirectory(prefix="slipway-lock-") as folder:
        source = Path(folder) / "pins.in"
        source.write_text("\n".join(pins) + "\n", encoding="utf-8")
        done = run(
            [
                uv, "pip", "compile", source, "--quiet", "--no-config", "--system-certs", "--no-deps", "--universal",
                "--python-version", f"3.{_PYTHONS[0]}", "--only-binary", ":all:", "--format", "pylock.toml",
            ],
            env=kept, error=HostError, what="Locking the packages", hint="check the network, then ./inv self.lock",
        )  # fmt: skip
    return done.stdout


def make() -> None:
    """Write every set's lock again, from the pins of pyproject.toml.

    Raises:
        HostError: the index could not be reached, or it has no wheel for a pin.
    """
    ensure("lock")
    folder = str(_pyproject()["tool"]["slipway"]["builds-at"])
    rows = []
    for name in bootstrap.LABELS:
        pins = requirements(name)
        text = _HEAD + lines_of_index(_compile([pin for pin in pins if not own_build(pin)]))
        text += "".join(lines_of_build(pin, builds(), folder) for pin in pins if own_build(pin))
        file = bootstrap.lock_file(name)
        before = file.read_text(encoding="utf-8") if file.is_file() else ""
        write_atomic(file, text)
        packages, files = len(bootstrap.locked(text)), text.count("--hash=")
        rows.append([name, str(packages), str(files), "unchanged" if text == before else "changed"])
    console.table("", ["set", "packages", "files", "lock"], rows)
