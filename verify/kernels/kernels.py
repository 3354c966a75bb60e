"""Which kernel computes which layer on which CPU: ``python -m verify.kernels.kernels --update`` looks, under QEMU.

``docs/lean.md`` has what was seen; the tests see whether it is so still (``tests/integration/test_lean_kleidiai.py``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import console
from core.formats.bundle import RUNNER
from core.paths import ROOT
from verify.suite.made import made_by
from verify.tables import Row, Table, table_of_rows

if TYPE_CHECKING:
    from core.formats.bundle import Bundle

KERNELS = Table("docs/lean.md", "kernels")
MAKER = ROOT / "verify" / "kernels" / "kleidiai_layers.py"
TARGET = "linux-arm64"
CPUS = ("cortex-a53", "cortex-a76", "max", "sme2")
FEATURES = ("base Armv8-A", "dotprod, half precision", "also i8mm, SME", "also SME2")
TITLES = {
    "qc8w-1": "float32, int8 weights, one row",
    "qc8w-21": "float32, int8 weights, 21 rows",
    "qc4w": "float32, int4 weights a channel",
    "qb4w": "float32, int4 weights a block of 32",
    "f32": "float32",
    "f32-kinds": "float32",
    "f32-windows": "float32, windows of an image",
    "f32-given": "float32, of two inputs",
    "f16": "float16",
    "f16-windows": "float16, windows of an image",
    "f16-given": "float16, of two inputs",
    "qs8": "static int8",
    "qs8-windows": "static int8, windows of an image",
    "qd8-pixel": "1x1 convolution quantized at run time, of single pixels",
    "qd8-image": "1x1 convolution quantized at run time, of images",
}
"""The programs of ``MAKER`` that the table shows."""


class RefusedError(Exception):
    """The runner did not run a program on a CPU; with what it said."""


Use = tuple[str, str]
"""A kind of node ("Fully Connected (NC, PF16) GEMM") and the kernel that computed it."""


@dataclass(frozen=True)
class Looked:
    """What the runner said of a program on a CPU."""

    result: dict[str, Any]
    uses: tuple[Use, ...]
    """Of the run, in order."""
    described: tuple[Use, ...]
    """Of ``--describe``."""


def uses_of(kernels: list[dict[str, str]]) -> tuple[Use, ...]:
    """Without the numbers that tell nodes of a kind apart."""
    return tuple((use["node"].rpartition(" #")[0], use["kernel"]) for use in kernels)


def look(bundle: Bundle, cpu: str, folder: Path, program: str, outputs: Path) -> Looked:
    """Run a program of ``folder`` and describe it; outputs are ``outputs`` followed by number and ``.npy``."""
    from toolchains.emulation.platforms import platform_for
    from toolchains.targets import get_target

    platform = platform_for(get_target(TARGET), cpu)
    inputs = sorted(folder.glob(f"{program}.in*.npy"))
    common = ["--json", f"--model_path={folder / program}.pte"]
    words = [f"--inputs={','.join(map(str, inputs))}", "--cpu_threads=2", "--num_executions=2", "--profile"]
    said = []
    for more in ([*words, f"--output_file={outputs}"], ["--describe"]):
        done = platform.run(bundle.path / RUNNER, [*common, *more], timeout=120)
        if done.returncode:
            raise RefusedError(f"{program} on {cpu}: {done.stderr}")
        said.append(json.loads(done.stdout))
    described = uses_of(said[1]["methods"][0]["kernels"])
    return Looked(said[0], uses_of(said[0]["kernels"]), described)


def _short(kernel: str) -> str:
    for prefix, name in (("kai_run_matmul_clamp_", "KleidiAI "), ("kai_run_", "KleidiAI "), ("xnn_", "")):
        if kernel.startswith(prefix):
            return f"{name}`{kernel.removeprefix(prefix)}`"
    return f"`{kernel}`"


def named(program: str, cpu: str) -> set[Use]:
    """Kinds of nodes and their kernels that docs/lean.md names for the layers of a program on a CPU."""
    found = set()
    for row in KERNELS.rows():
        title, _, kinds = row["layer"].rpartition(": ")
        if title == TITLES[program]:
            cells = [cell for head, cell in row.items() if head.startswith(f"{cpu} ")]
            found |= {(kind, cell) for kind in kinds.split(", ") for cell in cells}
    return found


def short(uses: Iterable[Use]) -> list[Use]:
    """Kinds of nodes and their kernels as docs/lean.md names them."""
    return [(node.partition(" (")[0].lower(), _short(kernel)) for node, kernel in uses]


def _rows(seen: Mapping[str, Mapping[str, Sequence[Use]]]) -> list[Row]:
    """A row a layer, a column a CPU; layers that ran the same kernels share a row."""
    found: dict[tuple[str, ...], Row] = {}
    for program, title in TITLES.items():
        rows = [seen[program][cpu] for cpu in CPUS]
        for index in range(max(map(len, rows))):
            layers = [short(row)[index] if row else ("", "refused") for row in rows]
            kinds, cells = {kind for kind, _ in layers if kind}, [kernel for _, kernel in layers]
            heads = (f"{cpu} ({has})" for cpu, has in zip(CPUS, FEATURES, strict=True))
            row = {"layer": f"{title}: {', '.join(sorted(kinds))}", **dict(zip(heads, cells, strict=True))}
            found.setdefault(tuple(row.values()), row)
    return list(found.values())


def main() -> None:
    """Look at all programs on all CPUs."""
    from toolchains.bundle.builder import build

    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--update", action="store_true", help="keep what is seen for the docs")
    update = words.parse_args().update
    bundle = build(TARGET, "lean")
    seen: dict[str, dict[str, tuple[Use, ...]]] = {}
    programs = made_by(MAKER)
    with tempfile.TemporaryDirectory(prefix="slipway-kernels-") as work:
        for program in TITLES:
            for cpu in CPUS:
                try:
                    uses = look(bundle, cpu, programs, program, Path(work, "out")).uses
                except RefusedError as why:
                    console.note(str(why))
                    uses = ()
                seen.setdefault(program, {})[cpu] = uses
                for node, kernel in uses:
                    console.note(f"{program} {cpu}: {node}: {kernel}")
    if update:
        KERNELS.write(table_of_rows(_rows(seen)))


if __name__ == "__main__":
    main()
