"""``./inv deploy``: build, export, run on a device, compare."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from commands.export import installed_beside
from commands.given import build_for, check_model, list_of, options_of, program_of
from core.cli.task import Words, number
from core.errors import UsageError
from core.formats.bundle import Bundle, find_bundle
from core.formats.program import ENGINES, format_at
from deploy.devices.inventory import Device, get_device
from deploy.run.engine_flags import LEAN, check_limits, engine_flags
from deploy.run.intact import check_whole
from deploy.run.job import Computed, check_engine, require_files, require_program
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings


def run(words: Words) -> None:
    """Do the steps of ``./inv deploy`` that are not done yet, and print the result.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    from deploy.run import report

    program = program_of(words)
    device = get_device(words["device"])
    files = {name: tuple(Path(each) for each in list_of(words[name])) for name in ("inputs", "expected")}
    settings = Settings.parse(
        words,
        **files,
        input_shapes=words["input_shapes"],
        data=Path(words["data"]) if words["data"] else None,
        method=words["method"],
        keep_run=words["keep_run"],
        weights_cache=not words["no_weights_cache"],
        etdump=words["etdump"] or words["values"],
        values=words["values"],
    ).on(device)
    if settings.values:  # the tensors are those of one execution
        settings = settings.model_copy(update={"num_executions": 1, "warmup": 0})
    given, engine = _bundle(words, device)
    if program:
        require_program(program)
        require_files((*files["inputs"], *files["expected"]))
        engine = engine or ("onnxruntime" if format_at(program) == "onnx" else "")
        check_engine(program, engine)
        check_whole(program)
        requests = []
    else:
        requests = check_model(words, ENGINES.get(engine, "pte"))
    if (settings.kleidiai or settings.cpu_features) and not engine:
        engine = LEAN  # no other engine can
    check_limits(engine, settings.kleidiai, settings.cpu_features)
    flags = {name: words[name] for name in ("provider", "ort_threads", "ort_spinning", "profile")}
    settings = settings.model_copy(update={"engine_flags": tuple(engine_flags(engine, **flags))})
    with installed_beside(requests, deploy=True, device=device.virtual):
        found = _deployed(words, device, given, engine, program, settings)
    report.result(found, words["json"])


def _deployed(
    words: Words, device: Device, given: Bundle | None, engine: str, program: Path | None, settings: Settings
) -> Result:
    """Build, export, and run it there."""
    from core.console.live import part

    with part("runner"):
        bundle = given or build_for(words["target"] or device.target, engine, words["toolchain"])
    kind = ENGINES[bundle.manifest.engine]
    compute = None
    if program is None:
        from commands.export import combined

        with part("export"):
            (path,) = combined(words["model"], words["scheme"], words["partitioners"], options_of(words), format=kind)
    else:
        path = program
        if kind == "onnx":
            compute = partial(_compute, program, list(settings.inputs), words["input_shapes"])
    if words["generate"]:
        from deploy.run.generate import settings_for

        settings = settings_for(path, number("generate", words["generate"], 1), settings)
    with part("run"):
        return deploy(device, bundle, path, settings, compute=compute)


def _bundle(words: Words, device: Device) -> tuple[Bundle | None, str]:
    """The bundle that ``--bundle`` names, if any, and the engine.

    Raises:
        UsageError: arguments that contradict each other. BundleError: unknown bundle.
    """
    if not words["bundle"]:
        return None, words["engine"]
    if words.given["engine"] or words.given["toolchain"]:
        raise UsageError(
            "--bundle cannot be used with --engine or --toolchain.", "the bundle sets both", "leave them out"
        )
    found = find_bundle(words["bundle"], words["target"] or device.target)
    return found, found.manifest.engine


def _compute(file: Path, inputs: list[Path], shapes: str) -> Computed | None:
    """Reference outputs of a user's own ``.onnx``, by this machine's ONNX Runtime; empty if it is not available."""
    from core.console import note
    from core.environment import ensure
    from core.errors import HostError
    from models.onnx import host

    try:
        ensure("onnx")
    except HostError as error:
        note(f"Warning: nothing to compare with: {error.what}")
        return None
    found = host.run(file, inputs=inputs, shapes=shapes)
    return Computed(found.outputs, found.tolerances, found.engine)
