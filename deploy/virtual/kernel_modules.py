"""Which kernel modules to load, in which order, read from the modules themselves.

A package's modules come without ``modules.dep`` (depmod makes it at installation), but each carries its name
and what it depends on in its ``.modinfo`` section, and ``modules.builtin`` lists what needs no loading.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path

from core.errors import ConfigError


def read_module(file: Path) -> bytes:
    """A module's ELF file, unpacked: suites after bookworm ship them compressed."""
    raw = file.read_bytes()
    return lzma.decompress(raw) if file.suffix == ".xz" else raw


def modinfo(raw: bytes) -> dict[str, list[str]]:
    """The ``key=value`` pairs of a module's ``.modinfo`` section; a key may occur several times."""
    from elftools.elf.elffile import ELFFile

    section = ELFFile(io.BytesIO(raw)).get_section_by_name(".modinfo")
    found: dict[str, list[str]] = {}
    for pair in section.data().split(b"\0") if section is not None else []:
        key, sign, value = pair.decode("utf-8", "replace").partition("=")
        if sign:
            found.setdefault(key, []).append(value)
    return found


def _plain(name: str) -> str:
    """The module's name in a file's name, which may have dashes instead of underscores."""
    return name.replace("-", "_")


def find(root: Path) -> tuple[dict[str, Path], frozenset[str]]:
    """All modules below ``lib/modules/<version>`` by name, and the names of those built into the kernel."""
    modules = {_plain(file.name.split(".ko")[0]): file for file in sorted(root.rglob("*.ko*"))}
    listing = root / "modules.builtin"
    lines = listing.read_text(encoding="utf-8").split() if listing.is_file() else []
    return modules, frozenset(_plain(Path(line).name.split(".ko")[0]) for line in lines)


def load_order(required: Iterable[str], modules: Mapping[str, Path], builtin: frozenset[str]) -> list[Path]:
    """The files to load for ``required``, each after its dependencies.

    Raises:
        ConfigError: the kernel's package lacks a module.
    """
    order: list[Path] = []
    seen: set[str] = set()

    def visit(name: str, because: str) -> None:
        if name in seen or name in builtin:
            return
        seen.add(name)
        file = modules.get(name)
        if file is None:
            raise ConfigError(
                f"The kernel's package has no module {name}.",
                f"needed by {because}",
                "fix deploy/virtual/virtual.toml",
            )
        info = modinfo(read_module(file))
        before = [word for value in info.get("depends", []) for word in value.split(",") if word]
        before += [
            word
            for value in info.get("softdep", [])
            if value.startswith("pre:")
            for word in value.partition("post:")[0].removeprefix("pre:").split()
            if _plain(word) in modules
        ]
        for word in before:
            visit(_plain(word), name)
        order.append(file)

    for name in required:
        visit(_plain(name), "deploy/virtual/virtual.toml")
    return order
