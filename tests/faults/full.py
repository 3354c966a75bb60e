"""Deploys while a small file system of their own is full, from a given step on: run under ``unshare -rm``.

``python -m tests.faults.full WHAT FOLDER`` mounts ``FOLDER/disk``, fills it in each way at each step, and prints a list
of [step, way, error, what is wrong] as JSON. ``WHAT`` is on it: ``device``, the device's store, which is filled up to
some bytes that are left; or ``results``, this machine's results and cache (``SLIPWAY_DIST`` and ``SLIPWAY_CACHE`` are
folders there), without a byte or an inode that is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from core.cli import task
from core.errors import SlipwayError
from core.paths import dist_dir
from deploy.run.events import Event
from tests.faults import outcomes, tiny

LEFT = (0, 40_000, 90_000, 250_000)
"""Bytes that are left; the bundle and its program take some 370,000."""
WAYS: dict[str, tuple[str, tuple[str, ...], tuple[int | str, ...]]] = {
    "device": ("size=4m", ("survey", "upload", "run", "settle"), LEFT),
    "results": ("size=2m,nr_inodes=200", ("describe", "upload", "run", "compare"), ("bytes", "inodes")),
}


def fill(filler: Path, way: int | str) -> None:
    """Leave so many bytes, rounded down to pages; or take every byte, or every inode, that is left."""
    filler.mkdir()
    if isinstance(way, int):
        with (filler / "bytes").open("wb") as file:
            info = os.statvfs(filler)  # after what was there before is gone
            os.posix_fallocate(file.fileno(), 0, max(1, info.f_bavail * info.f_bsize - way - 8192))
        return
    with contextlib.suppress(OSError):
        if way == "bytes":
            with (filler / "bytes").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        for index in range(10_000):
            (filler / str(index)).touch()


def outcome(action: Callable[[], object]) -> dict[str, object]:
    """The error as ``--json`` shows it; as the command line's last resort makes it where it is of the system."""
    try:
        action()
    except (SlipwayError, OSError) as error:
        return task.understood(error).to_json()
    return {"error": outcomes.DONE}


def main(what: str, where: str) -> None:
    options, steps, ways = WAYS[what]
    disk, on_device = Path(where) / "disk", what == "device"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    home = disk / "home" if on_device else Path(where) / "home"
    home.mkdir()
    (home / "precious").write_text("precious")
    root, filler = home / ".slipway", disk / "filler"
    small, device = tiny.make(Path(where) / "tiny"), tiny.local(root)

    def left() -> list[str]:
        """Unfinished files, and files under temporary names."""
        found = list((root / "incoming").glob("*")) if on_device else []
        found += [path for path in disk.rglob("*") if path.suffix in (".tmp", ".part", ".old")]
        return [f"{path} is left" for path in found]

    rows: list[list[object]] = []
    for step, way in ((step, way) for step in steps for way in ways):
        shutil.rmtree(root, ignore_errors=True)
        for folder in [] if on_device else list(disk.iterdir()):
            shutil.rmtree(folder)

        def listen(event: Event, step: str = step, way: int | str = way) -> None:
            if (event.step, event.kind) == (step, "start") and not filler.exists():
                fill(filler, way)

        told = outcome(lambda listen=listen: small.deploy(device, listeners=[listen]))  # type: ignore[misc]
        wrong = [*tiny.whole(home, root), *left()]
        wrong += [f"{path} is empty" for path in dist_dir().rglob("*.json") if not path.stat().st_size]
        shutil.rmtree(filler)
        small.deploy(device)
        rows.append([step, way, told, wrong + tiny.settled(home, root) + left()])
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
