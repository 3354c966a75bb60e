"""A deploy onto a small file system of its own that is full at a given step: run under ``unshare -rm``.

``python -m tests.faults.full_disk FOLDER`` prints a list of [step, bytes left, outcome, what is wrong] as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from deploy.devices.inventory import Device
from deploy.run.events import Event
from tests.faults import outcomes, tiny
from toolchains.targets import host_target

STEPS = ("survey", "upload", "run", "settle")
LEFT = (0, 40_000, 90_000, 250_000)
"""Bytes that are left; the bundle and its program take some 370,000."""


def fill(folder: Path, left: int) -> None:
    """Leave ``left`` bytes, rounded down to pages."""
    (folder / "precious").write_text("precious")
    with (folder.parent / "filler").open("wb") as file:
        info = os.statvfs(folder)  # after what was there before is gone
        os.posix_fallocate(file.fileno(), 0, max(1, info.f_bavail * info.f_bsize - left - 8192))


def main(where: str) -> None:
    disk = Path(where) / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    home = disk / "home"
    home.mkdir()
    small = tiny.make(Path(where) / "tiny")
    device = Device(name="board", transport="local", target=host_target().name, root=str(home / ".slipway"))
    rows: list[list[object]] = []
    for step in STEPS:
        for left in LEFT:
            subprocess.run(["rm", "-rf", str(home / ".slipway")], check=True)

            def listen(event: Event, step: str = step, left: int = left) -> None:
                if (event.step, event.kind) == (step, "start"):
                    fill(home, left)

            (home / "precious").write_text("precious")
            told = outcomes.outcome(lambda listen=listen: small.deploy(device, listeners=[listen]))  # type: ignore[misc]
            wrong = tiny.whole(home, home / ".slipway")
            wrong += [str(path) for path in (home / ".slipway/incoming").glob("*")]
            (disk / "filler").unlink()
            small.deploy(device)
            wrong += tiny.settled(home, home / ".slipway")
            rows.append([step, left, told, wrong])
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
