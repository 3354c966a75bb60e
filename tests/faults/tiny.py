"""A bundle and a program small enough to be deployed hundreds of times, and what must hold after any of them.

Then the table faults x phases in ``docs/proofs.md``: how each deploy ended. ``SLIPWAY_RECORD_FAULTS=1 ./inv test -k
faults`` writes it anew; else every outcome must be one that stands there.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import SlipwayError
from core.files import locked, sha256_file, write_atomic, write_json
from core.formats.bundle import Bundle, FileEntry, Manifest, Needs, Offers
from deploy.devices.inventory import Device
from deploy.run.events import Event, Listener
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from tests.support.processes import executable, gone, marked
from toolchains.targets import host_target
from verify.tables import Table

PAYLOAD = 300_000
MODEL = 60_000
ELEMENTS = 1000
LARGE = 100_000
"""Elements of an output that is too large to come with the run's end: it is fetched as a file."""


@dataclass(frozen=True)
class Tiny:
    bundle: Bundle
    model: Path
    data: Path

    def deploy(self, device: Device, **options: Any) -> Result:
        """Once, without any retry unless ``options`` say so."""
        listeners: list[Listener] = options.pop("listeners", [])
        settings = {
            "num_executions": 1, "warmup": 0, "retries": 0, "timeout": 60, "wait": 10,
            "inputs": (self.data,), "expected": (self.data,), **options,
        }  # fmt: skip
        result = deploy(device, self.bundle, self.model, Settings(**settings), listeners=listeners)
        assert result.verdict == "identical"
        return result


def make(
    folder: Path, name: str = "model", seed: int = 1, elements: int = ELEMENTS, digests: str = "no", mac: bool = False
) -> Tiny:
    """Write it below ``folder``; another ``seed`` gives other bytes.

    Args:
        digests: whether the runner says what it read: ``yes``, ``no``, the ``wrong`` digest, or it ``fails``.
        mac: whether it is for an Arm Mac, with the tools of one.
    """
    noise = random.Random(seed)  # noqa: S311 - the same bytes every time
    path = folder / "bundle"
    runner = (
        Path(__file__)
        .with_name("tiny_runner.sh")
        .read_text(encoding="utf-8")
        .replace("digests=no", f"digests={digests}", 1)
        .replace("sha256sum", "shasum -a 256" if mac else "sha256sum")
    )
    executable(path / "bin/pte_runner", runner)
    write_atomic(path / "lib/payload", noise.randbytes(PAYLOAD))
    entries = [
        FileEntry(path=name, size=(path / name).stat().st_size, sha256=sha256_file(path / name), executable=run)
        for name, run in (("bin/pte_runner", True), ("lib/payload", False))
    ]
    manifest = Manifest(
        target=host_target().name, engine="tiny", toolchain="none", created="2026-01-01T00:00:00Z",
        needs=Needs(os="macos", machine="arm64", libc="static") if mac
        else Needs(os="linux", machine=platform.machine(), libc="static"),
        offers=Offers(engine="tiny", engine_version="1", backends=(), operators=(), kleidiai=False, verified="native"),
        files=tuple(entries),
    )  # fmt: skip
    write_json(path / "manifest.json", manifest.model_dump(mode="json"))
    model, data = folder / f"{name}.pte", folder / "input.npy"
    model.write_bytes(noise.randbytes(MODEL))
    np.save(data, np.arange(elements, dtype=np.float32) + seed)
    return Tiny(Bundle.load(path), model, data)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make(tmp_path_factory.mktemp("tiny"))


def local(root: Path | str) -> Device:
    """A device that is this machine."""
    return Device(name="board", transport="local", target=host_target().name, root=str(root))


def phase(event: Event) -> str:
    """The phase of a deploy that begins with ``event``; what comes after the comparison is the release."""
    return event.step if event.kind == "start" else "release" if (event.step, event.kind) == ("compare", "end") else ""


def marked_root(root: Path) -> Path:
    """Make ``root`` one that Slipway takes for its own."""
    root.mkdir(mode=0o700, parents=True)
    (root / ".slipway-root").write_text(f"slipway-root 1 {'5' * 32}\n")
    return root


def whole(home: Path, root: Path) -> list[str]:
    """What is wrong on a device after a fault, besides unfinished files under temporary names; best nothing."""
    blobs = (root / "store").glob("*")
    wrong = [f"{blob.name} is not what its name says" for blob in blobs if sha256_file(blob) != blob.name]
    for kind, counts in (("bundle", (2,)), ("program", (1, 2))):  # an input may lie beside the program
        for folder in (root / f"{kind}s").glob("[0-9a-f]*"):
            sums = folder / "SHA256SUMS"
            lines = sums.read_text().splitlines() if sums.is_file() else []
            if len(lines) not in counts or any(sha256_file(folder / line[66:]) != line[:64] for line in lines):
                wrong.append(f"{kind} {folder.name[:8]} is not whole")
    links = (root / "current").glob("*")
    wrong += [f"{link.name} points nowhere" for link in links if not link.resolve().is_dir()]
    wrong += [f"{one.name} outside the store" for one in home.iterdir() if one.name not in {root.name, "precious"}]
    if (home / "precious").read_text() != "precious":
        wrong.append("a file outside the store was touched")
    return wrong


def settled(home: Path, root: Path) -> list[str]:
    """What is wrong on a device after a good deploy: `whole`, and nothing unfinished, no lock, no process."""
    left = [str(path.relative_to(root)) for name in ("incoming", "runs") for path in (root / name).iterdir()]
    locks = [path for path in (root / "lock").iterdir() if path.is_symlink() and not path.with_suffix(".free").exists()]
    parts = [str(path.relative_to(root)) for path in root.rglob("*.part")]
    return whole(home, root) + left + [f"{path.name} is locked" for path in locks] + parts + processes(home)


def processes(home: Path) -> list[str]:
    """Processes that work in ``home`` or name it, once those that are just ending have had a moment."""
    with contextlib.suppress(AssertionError):
        gone(str(home))
    return [f"process {pid}: {' '.join(argv)[:60]}" for pid, argv in marked(str(home)).items()]


# -- the table of faults and phases

FAULTS = Table("docs/proofs.md", "faults")
_ALSO: dict[str, set[str]] = {
    # Of these, chance decides how they end, and in which step.
    # A changed length keeps either side waiting for what never comes, or not, as chance has it.
    "byte changed": {"unreachable", "deadline"},
    # Whether the deadline or the pulse is the first to notice.
    "link stalls": {"unreachable", "deadline"},
    # How far the command got before it was killed.
    "command killed": {"unreachable", "transfer", "run", "done"},
    "second deploy, not waiting": {"device-busy", "done"},
}
DONE = "done"
"""The fault was overcome: the deploy ended well all the same."""


def outcome(action: Callable[[], object]) -> str:
    """``done``, or the kind of the error."""
    try:
        action()
    except SlipwayError as error:
        return error.kind
    return DONE


def rows() -> dict[tuple[str, str], tuple[int, set[str]]]:
    """The table: by fault and phase, the number of places and the outcomes that were seen."""
    found = {}
    for row in FAULTS.rows():
        for phase, cell in row.items():
            points, _, outcomes = cell.partition(": ")
            if phase != "fault" and outcomes:
                found[row["fault"], phase] = (int(points), set(outcomes.split(", ")))
    return found


def check(fault: str, phase: str, seen: Counter[str]) -> None:
    """Hold what was seen against the table, or write it there."""
    if os.environ.get("SLIPWAY_RECORD_FAULTS"):
        with locked("faults-record"):
            known_faults = {row["fault"]: row for row in FAULTS.rows()}
            new = {**dict.fromkeys(next(iter(known_faults.values())), ""), "fault": fault}
            row = {**known_faults.get(fault, new), phase: f"{seen.total()}: {', '.join(sorted(seen))}"}
            FAULTS.put([row], ("fault",), order=lambda one: one["fault"])
        return
    known = rows()
    if fault in _ALSO:
        ever = (outcomes for (name, _), (_, outcomes) in known.items() if name == fault)
        assert set(seen) <= _ALSO[fault].union(*ever), (fault, phase, seen)
        return
    points, outcomes = known[fault, phase]
    assert seen.total() == points, (fault, phase)
    assert set(seen) <= outcomes, (fault, phase, seen)
