"""``./inv compare``: one model's schemes side by side: accuracy, size, latency, load time, memory."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from commands import export
from commands.matrix import catalogue
from commands.requests import Compare
from core.cli.request import words
from core.environment import ensure_export
from core.errors import MatrixError, UsageError
from deploy.matrix import matrix
from deploy.matrix.comparing import Metric, compare, report
from deploy.matrix.matrix import MatrixRequest
from deploy.matrix.plan import named
from deploy.run.settings import Settings

_SAMPLES = 100
"""Samples on a real device, if no number is given."""


def run(request: Compare) -> None:
    """Export and run every scheme, measure, and print one table.

    Raises:
        MatrixError: a program failed or differs. UsageError, ConfigError, ExportError: see `models.samples.taking`.
    """
    from models.request import options
    from models.text.source import is_language
    from models.zoo import trained
    from models.zoo.schemes import load_schemes, schemes_of
    from toolchains.bundle.builder import build

    model = request.model
    if is_language(model):
        from commands import compare_text

        compare_text.run(request)
        return
    options.check(request.samples)
    trained.fetch([model])  # before the float model and the programs are made, which must have the same weights
    schemes = schemes_of(words(request.schemes or "all"))
    own = ":" in model or "/" in model
    asked = MatrixRequest(
        devices=words(request.devices or "local"),
        engines=words(request.engines),
        models=(model,),
        schemes=tuple(load_schemes()) if own and "all" in schemes else schemes,
        name="compare-" + re.sub(r"[^A-Za-z0-9_.]+", "-", model).strip("-.")[-50:],
        rounds=request.rounds,
        run=Settings.parse(vars(request), weights_cache=False),
    )
    metric = _metric(request.metric)
    asked, programs = catalogue(asked, request.variants)
    plan = matrix.planned(asked, programs)
    with tempfile.TemporaryDirectory() as folder:
        ensure_export()
        from models.samples.taking import prepare  # imports torch

        samples = prepare(model, request.samples, request.most or _SAMPLES, Path(folder))
        filled, where, made = matrix.run(
            asked, programs, lambda target, engine: build(target, engine, request.toolchain), export.each
        )
        found = compare(
            model, samples, filled.cells, made,
            many=bool(request.most), metric=metric, metric_name=request.metric,
            impossible=[f"{why} ({named(keys)})" for why, keys in plan.reasons().items()],
        )  # fmt: skip
    report(found, where, request.json)
    if wrong := [one for one in found.rows if not one.usable]:
        first = wrong[0]
        raise MatrixError(
            f"{len(wrong)} of {len(found.rows)} programs failed or differ from their references.",
            f"{first.program} on {first.device} ({first.engine}): "
            + (first.problem.short(first.program) if first.problem else first.outcome),
            "--schemes with the others leaves them out",
            [one.program for one in wrong],
        )


def _metric(text: str) -> Metric | None:
    """The user's own measure, which fails as the rest of his code does.

    Raises:
        UsageError: not a file and a function.
    """
    if not text:
        return None
    from models.users.users_code import function_in, is_function, opened

    if not is_function(text):
        raise UsageError(
            f"--metric {text!r} does not name a function.",
            "the name follows a colon",
            "--metric path/to/file.py:function",
            [text],
        )
    function_in(text, "--metric ")
    ensure_export()  # such a file may import torch

    def measure(outputs: list[tuple[object, ...]], labels: list[object]) -> float:
        with opened(text) as function:
            return float(function(outputs, labels))

    return measure
