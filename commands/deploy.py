"""``./inv deploy``: build, export, run on a device, compare."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from commands.answer import check_prompt, judged, prompted
from commands.answer import exported as exported_language
from commands.export import exported, installed_beside, requested
from commands.requests import Deploy, program_of
from core.cli.request import words
from core.formats.bundle import find_bundle
from core.formats.program import ENGINES, format_at
from deploy.devices.inventory import Device, get_device
from deploy.run.job import Job, check_engine, require_files, require_program
from deploy.run.pipeline import deploy
from deploy.run.settings import LEAN, Settings, check_limits, engine_flags
from models.text.source import is_language

_SHAPE = re.compile(r"scalar|\d+(x\d+)*")
"""Of ``--inputs``, what is no file: a shape to fill with ones."""


def run(request: Deploy) -> None:
    """Do the steps of ``./inv deploy`` that are not done yet, and print the result.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    from core.console.live import part
    from deploy.run import report
    from toolchains.bundle.builder import build
    from toolchains.targets import get_target

    check_prompt(request)
    device, program = get_device(request.device), program_of(request)
    if program is None and is_language(request.model):
        program = exported_language(request)
    target = request.target or device.target
    bundle = find_bundle(request.bundle, target) if request.bundle else None
    engine = bundle.manifest.engine if bundle else request.engine
    if program and not engine and format_at(program) == "onnx":
        engine = "onnxruntime"
    text = request.typed & {"prompt", "prompt_file"}
    if (request.cpu_features or text) and not engine:
        engine = LEAN  # no other engine can
    settings = _settings(request, device, engine)
    if program:
        require_program(program)
        require_files((*settings.inputs, *settings.expected))
        check_engine(program, engine)
    kind = ENGINES[engine if bundle else get_target(target).engine(engine)]
    with (
        prompted(request, program) as (prompt, listeners),
        installed_beside(list if program else partial(requested, request, kind), device.virtual) as requests,
    ):
        settings = settings.model_copy(update={"text": prompt})
        with part("runner"):
            bundle = bundle or build(target, engine, request.toolchain)
        if program is None:
            with part("export"):
                (path,) = exported(requests)
        else:
            path = program
        own = {"compute": partial(_computed, settings)} if program and kind == "onnx" else {}
        with part("run"):
            found = deploy(device, bundle, path, settings, listeners=listeners, **own)
        if prompt:
            with part("compare"):
                found = judged(found, path, prompt, greedy=request.temperature == 0)
    report.result(found, request.json)


def _settings(request: Deploy, device: Device, engine: str) -> Settings:
    """How it runs there.

    Raises:
        UsageError: a senseless value, or one that is for another engine.
    """
    shapes = [word for word in words(request.inputs) if _SHAPE.fullmatch(word)]
    once = {"num_executions": 1, "warmup": 0} if request.values else {}  # the tensors are those of one execution
    settings = Settings.parse(
        {**vars(request), **once},
        inputs=tuple(Path(word) for word in words(request.inputs) if word not in shapes),
        expected=tuple(map(Path, words(request.expected))),
        input_shapes=",".join(shapes),
        data=Path(request.data) if request.data else None,
        method=request.method,
        etdump=request.etdump or request.values,
        values=request.values,
        engine_flags=tuple(engine_flags(engine, provider=request.provider, profile=request.profile)),
    )
    check_limits(engine, settings.cpu_features)
    return settings.on(device)


def _computed(settings: Settings, job: Job) -> Job:
    """A user's own ``.onnx`` with the outputs of this machine's ONNX Runtime, if that is available."""
    from core.console import note
    from core.environment import ensure
    from core.errors import HostError
    from models.onnx import host

    try:
        ensure("onnx")
    except HostError as error:
        note(f"Warning: nothing to compare with: {error.what}")
        return job
    found = host.run(job.model.source, inputs=list(settings.inputs), shapes=settings.input_shapes)
    return replace(job, references=found.outputs, tolerances=found.tolerances, reference_engine=found.engine)
