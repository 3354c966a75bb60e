"""``./inv self.bench --what operators``: single operators at the sizes of nets, the engine lean beside upstream's.

Each use of an operator is a program of its own without a delegate, so portable kernels run, on one thread.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from commands.own import Bench
from core import console
from core.paths import dist_part
from verify.bench.measuring import Measured, Subject, engines, machine, sweep, undisturbed
from verify.programs import pick
from verify.tables import Table, table_of

OPERATORS = Table("docs/lean.md", "operators")
AIM = 1.1
"""Ratio to stay under."""
HEADINGS = ["operator", "sizes", "lean", "upstream", "ratio"]


def export(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Write the programs of uses, with their inputs; the inputs' sizes by name."""
    import numpy as np

    from verify.operators import layers

    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name in names:
        layer = layers.export(name)
        sizes[name] = layer.sizes
        _file(folder, name).write_bytes(layer.program)
        for index, value in enumerate(layer.inputs):
            np.save(_file(folder, name).with_suffix(f".{index}.npy"), value.contiguous().numpy())
    return sizes


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(' ', '-')}.pte"


def run(request: Bench) -> None:
    """Measure and print; with ``--update`` keep the figures for the docs."""
    from core.environment import ensure_export

    ensure_export()
    from verify.operators import layers

    names = pick(layers.USES, request.only, "./inv self.bench --what operators --only softmax,gelu")
    folder = dist_part("sweeps") / "operators"
    sizes = export(folder, names)
    subjects = []
    for name in names:
        file = _file(folder, name)
        inputs = sorted(folder.glob(f"{file.stem}.[0-9].npy"))
        subjects.append(Subject(name, file, tuple(inputs)))
    seen = sweep("bench-operators", engines(), subjects, request.runs)
    about = _about(seen, request.runs)
    if request.update:
        quiet = undisturbed(seen)
        slow = {name: one for name, one in quiet.items() if one.error or one.ratio() > 1}
        rest = f"All of the other {len(quiet) - len(slow)} uses are faster."
        OPERATORS.write(f"{table_of(HEADINGS, lines(sizes, slow))}\n{rest} {about}\n")
    console.table("lean beside executorch", HEADINGS, lines(sizes, seen), caption=about)


def lines(sizes: Mapping[str, str], seen: Mapping[str, Measured]) -> list[list[str]]:
    """A line for each use, with a mark where the aim is missed; what failed has its reason."""
    found = []
    for name, one in seen.items():
        if one.error:
            found.append([name, sizes[name], one.error, "", ""])
            continue
        ours, theirs = (figure.p50_ms[1] for figure in one.pair)
        mark = "" if ours / theirs <= AIM else " (!)"
        found.append(
            [name, sizes[name], *(f"{ms * 1000:,.1f} µs" for ms in (ours, theirs)), f"{ours / theirs:.2f}{mark}"]
        )
    return found


def _about(seen: Mapping[str, Measured], rounds: int) -> str:
    mean = statistics.geometric_mean([one.ratio() for one in seen.values() if one.figures] or [1.0])
    return (
        f"One thread, {rounds} rounds in turns and random order, medians; geometric mean of the ratios {mean:.2f}; "
        f"{machine()}; (!) above {AIM}"
    )
