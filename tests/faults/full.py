"""Deploys to a device whose store is a small file system of its own, full from a given step on: under ``unshare -rm``.

``python -m tests.faults.full FOLDER`` mounts ``FOLDER/disk``, fills it at each step up to some bytes that are left, and
prints a list of [step, bytes, error, what is wrong] as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from core.paths import dist_dir
from deploy.run.events import Event
from tests.faults import tiny

LEFT = (0, 40_000, 90_000, 250_000)
"""Bytes that are left; the bundle and its program take some 370,000."""
STEPS = ("survey", "upload", "run", "settle")


def fill(filler: Path, left: int) -> None:
    """Leave so many bytes, rounded down to pages."""
    filler.mkdir()
    with (filler / "bytes").open("wb") as file:
        info = os.statvfs(filler)  # after what was there before is gone
        os.posix_fallocate(file.fileno(), 0, max(1, info.f_bavail * info.f_bsize - left - 8192))


def main(where: str) -> None:
    disk = Path(where) / "disk"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    home = disk / "home"
    home.mkdir()
    (home / "precious").write_text("precious")
    root, filler = home / ".slipway", disk / "filler"
    small, device = tiny.make(Path(where) / "tiny"), tiny.local(root)

    def left() -> list[str]:
        """Unfinished files, and files under temporary names."""
        found = list((root / "incoming").glob("*"))
        found += [path for path in disk.rglob("*") if path.suffix in (".tmp", ".part", ".old")]
        return [f"{path} is left" for path in found]

    rows: list[list[object]] = []
    for step, count in itertools.product(STEPS, LEFT):
        shutil.rmtree(root, ignore_errors=True)

        def listen(event: Event, step: str = step, count: int = count) -> None:
            if (event.step, event.kind) == (step, "start") and not filler.exists():
                fill(filler, count)

        told = tiny.outcome(lambda listen=listen: small.deploy(device, listeners=[listen]))  # type: ignore[misc]
        wrong = [*tiny.whole(home, root), *left()]
        wrong += [f"{path} is empty" for path in dist_dir().rglob("*.json") if not path.stat().st_size]
        shutil.rmtree(filler)
        small.deploy(device)
        rows.append([step, count, told, wrong + tiny.settled(home, root) + left()])
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
