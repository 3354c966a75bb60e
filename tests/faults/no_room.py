"""Deploys whose results and cache are on a small file system that is full at a given step: bytes, or inodes.

``python -m tests.faults.no_room FOLDER``, under ``unshare -rm``, prints a list of [what is full, step, error, what is
wrong] as JSON. ``SLIPWAY_DIST`` and ``SLIPWAY_CACHE`` are folders of ``FOLDER/disk``, which it mounts.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from core.cli import unforeseen
from core.errors import SlipwayError
from core.paths import dist_dir
from deploy.devices.inventory import Device
from deploy.run.events import Event
from tests.faults import tiny
from toolchains.targets import host_target

STEPS = ("describe", "upload", "run", "compare")


def fill(folder: Path, what: str) -> None:
    """Take every byte, or every inode, that is left."""
    folder.mkdir()
    with contextlib.suppress(OSError):
        if what == "bytes":
            with (folder / "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        for index in range(10_000):
            (folder / str(index)).touch()


def outcome(action: Any) -> dict[str, object]:
    """The error as ``--json`` shows it; as the command line's last resort makes it where it is of the system."""
    try:
        action()
    except (SlipwayError, OSError) as error:
        return unforeseen.understood(error).to_json()
    return {"error": "done"}


def left(folder: Path) -> list[str]:
    """Files and folders under temporary names."""
    found = [path for path in folder.rglob("*") if path.suffix in (".tmp", ".part", ".old")]
    return [f"{path} is left" for path in found]


def main(where: str) -> None:
    disk = Path(where) / "disk"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=200", "tmpfs", str(disk)], check=True)
    home = Path(where) / "home"
    home.mkdir()
    (home / "precious").write_text("precious")
    small = tiny.make(Path(where) / "tiny")
    device = Device(name="board", transport="local", target=host_target().name, root=str(home / ".slipway"))
    rows: list[list[object]] = []
    for what in ("bytes", "inodes"):
        for step in STEPS:
            shutil.rmtree(home / ".slipway", ignore_errors=True)
            for folder in disk.iterdir():
                shutil.rmtree(folder)

            def listen(event: Event, step: str = step, what: str = what) -> None:
                if (event.step, event.kind) == (step, "start") and not (disk / "filler").exists():
                    fill(disk / "filler", what)

            told = outcome(lambda listen=listen: small.deploy(device, listeners=[listen]))
            wrong = left(disk)
            wrong += [f"{path} is empty" for path in dist_dir().rglob("*.json") if not path.stat().st_size]
            shutil.rmtree(disk / "filler")
            small.deploy(device)
            wrong += tiny.settled(home, home / ".slipway") + left(disk)
            rows.append([what, step, told, wrong])
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
