"""``locks/conan.lock``: which recipes of the checkout its packages are made by, to the last byte.

A recipe's revision follows from its files, so this file is the same on every machine. Builds pin the revisions that
the files have at that moment (`toolchains.bundle.conan.lockfile`); this one is for those who use the recipes with
Conan itself, and in it a review sees which packages a change makes anew. ``python -m toolchains.bundle.lock`` writes
it again.
"""

from __future__ import annotations

from core.files import locked, write_atomic
from core.paths import ROOT, cache_dir

FILE = ROOT / "locks" / "conan.lock"


def current() -> str:
    """The content that the file must have for the current recipes."""
    from toolchains.bundle import conan

    with locked(conan.LOCK):
        return conan.lockfile(cache_dir("logs") / "lock.log").read_text(encoding="utf-8")


if __name__ == "__main__":
    write_atomic(FILE, current())
