"""The archive's lists of packages, ``Packages`` and ``Sources``: looked up by name, parsed only where they are used."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote as quote_path

from toolchains.debian.client import ArchiveError, Item

_NAME = re.compile(r"^Package: *(\S+)$", re.MULTILINE)
_PROVIDES = re.compile(r"^Provides: *(\S.*)$", re.MULTILINE)
_PRIORITIES = {name: order for order, name in enumerate(("required", "important", "standard", "optional"))}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OTHER_MIRROR = "set SLIPWAY_DEBIAN_MIRROR to another mirror"


@dataclass(frozen=True)
class Relation:
    """One alternative of a dependency: ``libc6 (>= 2.36)``."""

    name: str
    operator: str = ""
    version: str = ""


@dataclass(frozen=True)
class Package:
    """One binary package of the list."""

    name: str
    version: str
    arch: str
    path: str
    """Below the mirror's address."""
    size: int
    sha256: str
    depends: tuple[tuple[Relation, ...], ...]
    """Groups of alternatives, of which one each is needed."""
    conflicts: tuple[Relation, ...]
    provides: tuple[Relation, ...]
    priority: str = "optional"

    def gives(self, wanted: Relation) -> bool:
        """Whether it provides what the relation names: with a version only by a versioned Provides (Policy 7.5)."""
        return any(
            given.name == wanted.name
            and (not wanted.operator or bool(given.version and satisfies(given.version, wanted)))
            for given in self.provides
        )

    def item(self, mirror: str) -> Item:
        """The file as apt names it."""
        version = self.version.replace(":", "%3a")
        uri = f"{mirror.rstrip('/')}/{quote_path(self.path)}"
        return Item(uri, f"{self.name}_{version}_{self.arch}.deb", self.size, self.sha256)


@functools.lru_cache(maxsize=1 << 16)
def version_key(version: str) -> Any:
    """Orders versions as Debian does."""
    from debian.debian_support import NativeVersion

    return NativeVersion(version)


def satisfies(version: str, wanted: Relation) -> bool:
    """Whether ``version`` of a package is what the relation needs."""
    if not wanted.operator:
        return True
    have, bound = version_key(version), version_key(wanted.version)
    compared: dict[str, bool] = {
        "<<": have < bound, "<=": have <= bound, "<": have <= bound,
        "=": have == bound,
        ">=": have >= bound, ">": have >= bound, ">>": have > bound,
    }  # fmt: skip
    return compared.get(wanted.operator, False)


def _relations(groups: Iterable[Iterable[dict[str, Any]]]) -> tuple[tuple[Relation, ...], ...]:
    return tuple(tuple(Relation(one["name"], *(one.get("version") or ("", ""))) for one in group) for group in groups)


def safe_path(path: str) -> str:
    """A path below the mirror's address.

    Raises:
        ArchiveError: it leads elsewhere.
    """
    if not re.fullmatch(r"[\w+.~-][\w+.~/-]*", path, re.ASCII) or ".." in PurePosixPath(path).parts:
        raise ArchiveError(f"The archive's list names {path!r}, which is not a path in the archive.", "", _OTHER_MIRROR)
    return path


def _digest(text: str) -> str:
    if not _SHA256.fullmatch(text):
        raise ArchiveError(f"The archive's list has {text!r} in place of a SHA-256.", "", _OTHER_MIRROR)
    return text


class Index:
    """A suite's ``Packages`` for one architecture."""

    def __init__(self, text: str) -> None:
        self._stanzas: dict[str, list[str]] = {}
        self._providing: list[str] = []
        for stanza in text.split("\n\n"):
            if found := _NAME.search(stanza):
                self._stanzas.setdefault(found[1], []).append(stanza)
                if "\nProvides:" in stanza:
                    self._providing.append(stanza)

    @functools.cached_property
    def _providers(self) -> dict[str, list[str]]:
        """Names of the packages that provide a name, in the list's order."""
        found: dict[str, list[str]] = {}
        for stanza in self._providing:
            name, provides = _NAME.search(stanza), _PROVIDES.search(stanza)
            for one in provides[1].split(",") if name and provides else ():
                found.setdefault(one.strip().split(" ")[0].split(":")[0], []).append(name[1] if name else "")
        return found

    @functools.cache  # noqa: B019 - an index lives as long as the look-up
    def packages(self, name: str) -> tuple[Package, ...]:
        """All versions of ``name``, the newest first."""
        found = [self._parse(stanza) for stanza in self._stanzas.get(name, ())]
        return tuple(sorted(found, key=lambda package: version_key(package.version), reverse=True))

    def providers(self, wanted: Relation) -> list[Package]:
        """Packages that provide what the relation needs: as apt, those of a higher priority first."""
        names = dict.fromkeys(self._providers.get(wanted.name, ()))
        found = [package for name in names for package in self.packages(name)[:1] if package.gives(wanted)]
        return sorted(found, key=lambda package: _PRIORITIES.get(package.priority, len(_PRIORITIES)))

    @staticmethod
    def _parse(stanza: str) -> Package:
        from debian.deb822 import Packages

        fields = Packages(stanza)
        relations = fields.relations
        needs = (*relations["pre-depends"], *relations["depends"])
        against = (*relations["conflicts"], *relations["breaks"])
        return Package(
            name=fields["Package"],
            version=fields["Version"],
            arch=fields["Architecture"],
            path=safe_path(fields["Filename"]),
            size=int(fields["Size"]),
            sha256=_digest(fields["SHA256"].lower()),
            depends=_relations(needs),
            conflicts=tuple(one for group in _relations(against) for one in group),
            provides=tuple(one for group in _relations(relations["provides"]) for one in group),
            priority=fields.get("Priority", "optional"),
        )


_ABSENT = "set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror"


def find(index: Index, spec: str, suite: str) -> Package:
    """The newest package that ``spec`` names, ``name`` or ``name=version``.

    Raises:
        ArchiveError: the list has none.
    """
    name, _, version = spec.partition("=")
    for package in index.packages(name):
        if not version or package.version == version:
            return package
    have = ", ".join(package.version for package in index.packages(name))
    cause = f"it has {have}" if have else "its list does not name it"
    raise ArchiveError(f"Debian {suite} has no {spec}.", cause, _ABSENT, absent=True)


class Closure:
    """Packages that are chosen, each with all that it needs; ``suite`` is for messages."""

    def __init__(self, index: Index, suite: str) -> None:
        self._index, self._suite = index, suite
        self.chosen: dict[str, Package] = {}
        """By name, in the order in which they were chosen."""

    def add(self, packages: Sequence[Package]) -> None:
        """Choose ``packages`` and what they need.

        Raises:
            ArchiveError: something that one of them needs is not in the list.
        """
        self.chosen |= {package.name: package for package in packages}
        waiting = list(packages)
        while waiting:
            package = waiting.pop(0)
            for group in package.depends:
                if any(self._met(one) for one in group):
                    continue
                if (found := self._choose(group)) is None:
                    words = " or ".join(one.name for one in group)
                    raise ArchiveError(
                        f"Debian {self._suite} lacks something that {package.name} needs.", words, _ABSENT, absent=True
                    )
                self.chosen[found.name] = found
                waiting.append(found)

    def _met(self, wanted: Relation) -> bool:
        if (have := self.chosen.get(wanted.name)) and satisfies(have.version, wanted):
            return True
        return any(self.chosen.get(package.name) == package for package in self._index.providers(wanted))

    def _choose(self, group: Sequence[Relation]) -> Package | None:
        """The first alternative that there is and that goes with what is chosen."""
        for one in group:
            named = [package for package in self._index.packages(one.name) if satisfies(package.version, one)]
            for package in (*named[:1], *self._index.providers(one)):
                if self._fits(package):
                    return package
        return None

    def _fits(self, package: Package) -> bool:
        return package.name not in self.chosen and not any(
            self._against(package, other) or self._against(other, package) for other in self.chosen.values()
        )

    @staticmethod
    def _against(one: Package, other: Package) -> bool:
        return any(
            satisfies(other.version, conflict) if conflict.name == other.name else other.gives(conflict)
            for conflict in one.conflicts
        )
