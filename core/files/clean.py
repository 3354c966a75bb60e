"""Remove the files that Slipway made on this machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from core import console
from core.errors import HostError
from core.paths import CACHE_PARTS, DIST_PARTS, cache_dir, dist_dir, dist_part


def _writable_again(function: Callable[[str], object], name: str, _: object) -> None:
    """A store's folders may be read-only, which keeps their owner from emptying them."""
    for folder in (Path(name).parent, Path(name)):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)
    function(name)


def _remove(path: Path) -> int:
    size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
    try:
        shutil.rmtree(path, onerror=_writable_again)
    except OSError as error:
        raise HostError(f"Could not remove {path}.", str(error), "see who owns it, then try again") from error
    return size


def _dist_parts() -> list[Path]:
    """What in ``dist/`` is ours: bundles, programs, results and the like; a user's own files stay."""
    root = dist_dir()
    if not root.is_dir():
        return []
    bundles = {manifest.parent for manifest in root.glob("*/*/manifest.json")}
    return sorted(bundles | {dist_part(name) for name in DIST_PARTS if dist_part(name).is_dir()})


def _clean_dist() -> dict[str, int]:
    removed = {str(part): _remove(part) for part in _dist_parts()}
    for pattern in ("*/.*.built.json", "*/slipway-sdk-*.tar.xz*"):
        for file in dist_dir().glob(pattern):
            file.unlink()
    for folder in [*dist_dir().glob("*"), dist_dir()]:
        with contextlib.suppress(OSError):
            folder.rmdir()  # empty ones only
    return removed


def clean(*, cache: bool, as_json: bool) -> None:
    """Remove ``dist/``'s contents and, if requested, the shared cache.

    Virtual devices keep their state in the cache: the caller stops them first.

    Raises:
        HostError: something could not be removed.
    """
    removed = _clean_dist()
    if cache:
        root = cache_dir()
        removed |= {str(root / name): _remove(root / name) for name in CACHE_PARTS if (root / name).is_dir()}
        with contextlib.suppress(OSError):
            root.rmdir()
    if as_json:
        console.print_json([{"path": path, "bytes": size} for path, size in removed.items()])
    elif removed:
        console.table("Removed", ["path", "MB"], [[path, f"{size / 1e6:.1f}"] for path, size in removed.items()])
    else:
        console.note("Nothing to remove.")
