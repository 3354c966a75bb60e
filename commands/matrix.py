"""``./inv matrix``: many programs on many devices, everything built and exported once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from commands import export
from commands.requests import Matrix
from core.cli.request import words as listed
from core.errors import ConfigError
from core.processes.commands import quote, typed
from deploy.matrix import matrix, report
from deploy.matrix.matrix import MatrixRequest
from deploy.matrix.model import Matrix as MatrixFound
from deploy.matrix.plan import SCHEMES, Exportable
from deploy.run.settings import Settings


def run(request: Matrix) -> None:
    """Run ``./inv matrix``.

    Raises:
        MatrixError: cells failed. RegressionError: figures are worse than allowed. UsageError, ConfigError
    """
    from models.zoo.schemes import schemes_of

    asked = MatrixRequest(
        only=request.only,
        devices=listed(request.devices),
        engines=listed(request.engines),
        models=listed(request.models),
        schemes=schemes_of(listed(request.schemes)),
        name=request.name,
        resume=request.resume,
        shard=request.shard,
        jobs=request.jobs,
        rounds=request.rounds,
        run=Settings.parse(vars(request), weights_cache=False),  # times are compared with other runs'
        baseline=request.baseline,
        save_baseline=request.save_baseline,
        fail_on_regression=request.fail_on_regression,
        command=quote(typed()),
    )
    if request.merge:
        _report(request, *matrix.merge(listed(request.merge), asked))
        return
    asked, programs = catalogue(asked, request.variants)
    if request.list or request.print_matrix:
        plan = matrix.planned(asked, programs)
        report.print_matrix(plan) if request.print_matrix else report.planned(plan, request.json)
        return

    from commands.compare_text import Pace
    from toolchains.bundle.builder import build

    with tempfile.TemporaryDirectory(prefix="slipway-matrix-") as folder:
        found, where, _ = matrix.run(
            asked, programs, lambda target, engine: build(target, engine, request.toolchain), export.each,
            Pace(Path(folder)),
        )  # fmt: skip
        _report(request, found, where)


def _report(request: Matrix, found: MatrixFound, folder: Path) -> None:
    """What came out, judged as if one job had run all of it."""
    report.report(found, folder, request.json)
    matrix.check(found, folder, request.save_baseline)


def catalogue(request: MatrixRequest, variants: str = "") -> tuple[MatrixRequest, list[Exportable]]:
    """Every program that can be exported, with the user's own models of --models, and the request with their names.

    Args:
        variants: other partitioners or options, with blanks between them: each makes one more program of every model
            and scheme that it goes with.

    Raises:
        ConfigError: one goes with none of them. UsageError: an option that is not KEY=VALUE.
    """
    from models.request import resolve
    from models.text import source as language
    from models.zoo import everything
    from models.zoo.schemes import ONNX_SCHEMES, type_of

    found = [
        Exportable(f"{model}-{scheme}{'-onnx' if kind == 'onnx' else ''}", model, scheme, kind, also=type_of(scheme))
        for kind in ("pte", "onnx")
        for model, scheme in everything(kind)
    ]
    found += [
        Exportable(f"{model}-{scheme}", model, scheme, "pte", also=type_of(scheme), text=True)
        for model in language.zoo()
        if _named(model, request)
        for scheme in language.SCHEMES
    ]
    names = []
    for name in request.models:
        if ":" not in name and "/" not in name:
            names.append(name)
            continue
        if language.is_language(name):
            for scheme in request.schemes or language.SCHEMES[:1]:
                one = language.find(name, scheme)
                found.append(Exportable(one.name, one.stem, scheme, "pte", name, type_of(scheme), text=True))
            names.append(one.stem)
            continue
        for scheme in request.schemes or SCHEMES:
            for kind in ("pte", "onnx") if scheme in ONNX_SCHEMES else ("pte",):
                program = resolve(name, scheme, format=kind)
                short = program.name.removesuffix("-onnx").removesuffix(f"-{scheme}")
                found.append(Exportable(program.name, short, scheme, kind, name, type_of(scheme)))
        names.append(short)
    request = replace(request, models=tuple(names))
    return request, found + [program for text in variants.split() for program in _varied(request, found, text)]


def _named(model: str, request: MatrixRequest) -> bool:
    """Whether a request names a language model: ``*`` alone is not for one, which takes minutes to export."""
    words = [*request.models, *re.findall(r"[\w.*-]+", request.only)]
    begun = [word.partition("*")[0] for word in words]
    return any(len(one) > 3 and (model.startswith(one) or one.startswith(model)) for one in begun)


def _varied(request: MatrixRequest, programs: Sequence[Exportable], text: str) -> list[Exportable]:
    """The programs that can be asked for, as one variant makes them."""
    from models.request import resolve
    from models.request.options import parse
    from models.request.partitioners import chosen, suffix, why_not
    from models.zoo.schemes import get_scheme

    names, options = chosen(text)
    found, why = [], None
    for one in programs:
        asked = (not request.models or one.model in request.models) and (
            not request.schemes or one.scheme in request.schemes or "all" in request.schemes
        )
        if one.format != "pte" or one.text or not asked:
            continue
        try:
            program = resolve(one.source or one.model, one.scheme, partitioners=names, options=options)
        except ConfigError as error:
            why = error
            if never := why_not(names, get_scheme(one.scheme).dynamic) if names else "":
                label = f"{one.name}{suffix(names, parse(options))}"
                found.append(replace(one, name=label, variant=text, why_not=never))
            continue
        if program.name != resolve(one.source or one.model, one.scheme).name:
            found.append(replace(one, name=program.name, variant=text))
    if not found and why is not None:
        raise why
    return found
