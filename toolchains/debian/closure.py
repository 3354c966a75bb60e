"""What a set of packages needs besides itself: their dependencies, chosen as apt chooses them on an empty system."""

from __future__ import annotations

from collections.abc import Sequence

from toolchains.debian.client import ArchiveError
from toolchains.debian.index import Index, Package, Relation, satisfies

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
    """Packages that are chosen, each with all that it needs.

    Args:
        suite: for messages.
    """

    def __init__(self, index: Index, suite: str) -> None:
        self._index, self._suite = index, suite
        self.chosen: dict[str, Package] = {}
        """By name, in the order in which they were chosen."""

    def add(self, packages: Sequence[Package]) -> None:
        """Choose ``packages`` and what they need.

        Raises:
            ArchiveError: something that one of them needs is not in the list.
        """
        for package in packages:
            self.chosen[package.name] = package
        waiting = list(packages)
        while waiting:
            package = waiting.pop(0)
            for group in package.depends:
                if any(self._met(one) for one in group):
                    continue
                found = self._choose(group)
                if found is None:
                    words = " or ".join(one.name for one in group)
                    raise ArchiveError(
                        f"Debian {self._suite} lacks something that {package.name} needs.", words, _ABSENT, absent=True
                    )
                self.chosen[found.name] = found
                waiting.append(found)

    def _met(self, wanted: Relation) -> bool:
        have = self.chosen.get(wanted.name)
        if have is not None and satisfies(have.version, wanted):
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
        if package.name in self.chosen:
            return False
        return not any(self._against(one, package) for one in package.conflicts) and not any(
            self._names(one, package) for other in self.chosen.values() for one in other.conflicts if other != package
        )

    def _against(self, conflict: Relation, package: Package) -> bool:
        return any(other.name != package.name and self._names(conflict, other) for other in self.chosen.values())

    @staticmethod
    def _names(conflict: Relation, package: Package) -> bool:
        if conflict.name == package.name:
            return satisfies(package.version, conflict)
        # A versioned conflict is not with a Provides that has no version (Debian Policy 7.5).
        return any(
            given.name == conflict.name
            and (not conflict.operator or bool(given.version and satisfies(given.version, conflict)))
            for given in package.provides
        )
