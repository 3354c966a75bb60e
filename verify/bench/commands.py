"""What ``./inv self.bench`` does: time Slipway's own commands as a user feels them, whole processes.

Wall-clock medians over several runs after one that is not counted; a bare ``python -c pass`` is run in
turn with each command, so that the ratio says what Slipway adds on whatever machine this is.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from core import console
from core.errors import SlipwayError
from core.paths import ROOT

INV = os.fspath(ROOT / "inv")
BARE = (sys.executable, "-c", "pass")


@dataclass(frozen=True)
class Case:
    """A command and the time it is meant to stay under, in seconds."""

    name: str
    argv: tuple[str, ...]
    aim: float


CASES = (
    Case("list the tasks", (INV, "--list"), 0.5),
    Case("list the targets", (INV, "targets"), 0.5),
    Case("list the models", (INV, "models"), 0.5),
    Case("list the devices", (INV, "devices.list"), 0.5),
    Case("build linux-x86_64, nothing to do", (INV, "build", "--target", "linux-x86_64"), 2.0),
    Case("build linux-arm64, nothing to do", (INV, "build", "--target", "linux-arm64"), 2.0),
    Case("export mlp, nothing to do", (INV, "export", "--model", "mlp"), 2.0),
    Case("deploy mlp to local, nothing to upload", (INV, "deploy", "--device", "local", "--model", "mlp"), 2.0),
    Case("deploy mlp to pi, nothing to upload", (INV, "deploy", "--device", "pi", "--model", "mlp"), 5.0),
)


def _seconds(argv: tuple[str, ...]) -> float:
    start = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SlipwayError(
            f"{' '.join(argv[1:])} failed (exit {done.returncode}) while being timed.",
            done.stderr.strip(),
            "run it alone",
        )
    return time.monotonic() - start


def run(runs: int, as_json: bool) -> None:
    """Time every case ``runs`` times; times in seconds."""
    results = []
    for case in CASES:
        _seconds(case.argv)
        _seconds(BARE)
        pairs = [(_seconds(case.argv), _seconds(BARE)) for _ in range(runs)]
        times = sorted(own for own, _ in pairs)
        median = statistics.median(times)
        results.append(
            {
                "case": case.name,
                "command": " ".join(("./inv", *case.argv[1:])),
                "median_s": round(median, 3),
                "min_s": round(times[0], 3),
                "max_s": round(times[-1], 3),
                "aim_s": case.aim,
                "ratio_to_bare_python": round(statistics.median(own / bare for own, bare in pairs), 1),
            }
        )
        console.note(f"{case.name}: {median:.3f} s")
    if as_json:
        console.print_json(results)
        return
    console.table(
        f"Slipway's own speed, {runs} runs each",
        ["case", "median", "min", "max", "aim", "× bare Python"],
        [
            [
                str(row["case"]),
                f"{row['median_s']:.3f} s",
                f"{row['min_s']:.3f} s",
                f"{row['max_s']:.3f} s",
                f"{row['aim_s']:.1f} s",
                f"{row['ratio_to_bare_python']}",
            ]
            for row in results
        ],
    )
