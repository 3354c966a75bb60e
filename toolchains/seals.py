"""Every seal of the cache, verified by reading all of its files: ``./inv doctor --cache``.

Before something of the cache is run, only what looks changed is read (`core.files.sealed`). A bit that changed on a
failing disk leaves no trace there; here it is found.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core import console
from core.errors import HostError
from core.files import sealed
from core.paths import cache_dir

_PARTS = ("tools", "toolchains", "debian", "images", "wine", "zig")
"""Parts of the cache that have sealed folders."""
_DEPTHS = ("*", "*/*", "*/*/*")


@dataclass(frozen=True)
class Looked:
    """One sealed folder."""

    folder: str
    bytes: int
    damaged: tuple[str, ...]
    """Files that were changed, added or removed since it was made."""


def folders() -> list[Path]:
    """Every sealed folder of the cache."""
    root = cache_dir()
    patterns = [f"{part}/{depth}/{sealed.SEAL}" for part in _PARTS for depth in _DEPTHS]
    return sorted({file.parent for pattern in patterns for file in root.glob(pattern)})


def look() -> Iterator[Looked]:
    """Read every sealed folder of the cache, with progress."""
    found = {folder: sealed.size(folder) for folder in folders()}
    done = 0
    with console.step("reading the cache", announce=False) as step:
        for folder, size in found.items():
            step.now(folder.name)
            try:
                damaged = tuple(sealed.damage(folder, full=True))
            except FileNotFoundError:
                continue  # it is being made anew, or was removed, at this moment
            except OSError as error:  # a disk that cannot be read
                damaged = (str(error),)
            done += size
            step.bytes(done, sum(found.values()))
            yield Looked(str(folder), size, damaged)


def report(as_json: bool) -> None:
    """Print what was read.

    Raises:
        HostError: something of it is not as it was made.
    """
    found = list(look())
    if as_json:
        console.print_json([asdict(one) for one in found])
    else:
        root = cache_dir()
        rows = [
            [str(Path(one.folder).relative_to(root)), f"{one.bytes / 1e6:,.1f} MB", _state(one.damaged)]
            for one in found
        ]
        console.table("The cache", ["sealed folder", "size", "state"], rows)
    bad = [one for one in found if one.damaged]
    if bad:
        raise HostError(
            f"{len(bad)} of {len(found)} sealed folders of the cache are damaged.",
            "; ".join(f"{Path(one.folder).name}: {_state(one.damaged)}" for one in bad),
            f"rm -r {shlex.join(one.folder for one in bad)}; what needs them makes or fetches them again",
            [one.folder for one in bad],
        )


def _state(damaged: tuple[str, ...]) -> str:
    if not damaged:
        return "as it was made"
    more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
    return f"DAMAGED: {', '.join(damaged[:3])}{more}"
