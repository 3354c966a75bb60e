"""``./inv self.fuzz``: damaged programs against the engine lean, under Clang's sanitizers, guided by libFuzzer.

The corpus grows from run to run in the cache; what a bug was found with belongs in ``tests/fixtures/damaged``, which
every corpus begins with.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.errors import MismatchError
from core.paths import ROOT, cache_dir
from core.processes.commands import run as run_command
from verify.fuzz.build import SANITIZED, build

KEPT = ROOT / "tests" / "fixtures" / "damaged"
"""Programs that something was found with."""
SEEDS = (
    ("mlp", "fp32"),
    ("mlp", "qs8"),
    ("linear", "qd8_qb4w"),
    ("conv", "qs8"),
    ("matmul", "fp32"),
    ("mixed", "fp32"),
)
"""Small programs of the zoo, model and scheme, that the first corpus is made of."""
_HANGS = 25
"""Seconds after which a program counts as hung."""
_LARGEST = 256 * 1024
"""Bytes of the largest program tried: larger ones hold only more weights."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run."""

    seconds: float
    executions: int
    corpus: int
    features: int
    """Code coverage of the corpus, in libFuzzer's count."""
    findings: tuple[str, ...]


_SOUND = (
    "made-images-per-channel-delegated", "made-lines-per-channel-delegated", "types-layer-half-delegated",
    "sizes-multihead-delegated", "sizes-max-pooled-delegated",
)  # fmt: skip
"""Sound programs of small layers, besides those of the family ``runtime`` and one of each other kind."""


def seeds(corpus: Path) -> None:
    """Programs of the zoo, small ones, those that operators are tested with, and those that found something before."""
    import torch

    from core.formats.program import load_program
    from models.export import export
    from verify.operators import attacks, written
    from verify.sound import table

    torch.manual_seed(0)
    sound = table.programs()
    names = [name for name in sound if name.startswith("runtime-") or name in (*table.EACH, *_SOUND)]
    programs = {name: sound[name]().buffer for name in names}
    programs |= {name: getattr(written, name)().program() for name in ("numbers", "calls", "chance")}
    programs |= {name: attacks.program(name)[0] for name in attacks.WRONG}
    for name, buffer in programs.items():
        (corpus / f"{name}.pte").write_bytes(buffer)
    for model, scheme in SEEDS:
        folder = export(model, scheme)
        program = folder / load_program(folder).file
        if program.stat().st_size <= _LARGEST:
            shutil.copy(program, corpus / f"{model}-{scheme}.pte")
    for file in sorted(KEPT.glob("*.pte")):
        shutil.copy(file, corpus / file.name)


def environment() -> Mapping[str, str]:
    """Sanitizers' options: numbers of a damaged file may ask for any amount of memory, and are to be refused it."""
    return {
        **os.environ,
        "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def fuzz(program: Path, corpus: Path, seconds: int, log: Path) -> Outcome:
    """Run the fuzzer; every finding is a file in the cache."""
    found = cache_dir("fuzz", "findings")
    before = {file.name for file in found.iterdir()}
    started = time.monotonic()
    argv: Sequence[str | Path] = [
        "nice", "-n", "19", program, corpus, f"-max_total_time={seconds}", f"-timeout={_HANGS}",
        # What is only slow is so where other work has the processor.
        f"-report_slow_units={_HANGS + 1}", "-rss_limit_mb=3000", "-malloc_limit_mb=4000",
        f"-max_len={_LARGEST}", f"-artifact_prefix={found}/", "-print_final_stats=1",
    ]  # fmt: skip
    done = run_command(argv, env=environment(), timeout=seconds + 600, error=None, log=log, what="Fuzzing")
    text = done.stdout + done.stderr
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    features = re.findall(r" ft: (\d+)", text)
    return Outcome(
        round(time.monotonic() - started, 1),
        int(executions[1]) if executions else 0,
        len(list(corpus.iterdir())),
        int(features[-1]) if features else 0,
        tuple(sorted(str(found / file.name) for file in found.iterdir() if file.name not in before)),
    )


def run(minutes: float) -> None:
    """Build, seed, fuzz, report.

    Raises:
        HostError: no Clang with libFuzzer.
        MismatchError: something was found.
    """
    log = cache_dir("logs") / "fuzz.log"
    log.write_text("", encoding="utf-8")
    program = build(SANITIZED, "fuzz_program", log)
    corpus = cache_dir("fuzz", "corpus")
    seeds(corpus)
    outcome = fuzz(program, corpus, max(1, round(minutes * 60)), log)
    shown = {**outcome.__dict__, "findings": len(outcome.findings)}
    console.table("Fuzzing the engine lean", list(shown), [list(map(str, shown.values()))])
    if outcome.findings:
        raise MismatchError(
            f"{len(outcome.findings)} programs crash, leak or hang the engine.",
            f"what the sanitizers said is in {log}",
            f"{program} {outcome.findings[0]}; once fixed, keep the file in {KEPT.relative_to(ROOT)}",
            list(outcome.findings),
        )
