"""``./inv tune``: measure what could compute each layer on a device, and keep the fastest there."""

from __future__ import annotations

from pathlib import Path

from commands.export import installed_beside
from commands.given import build_for, check_model, list_of, program_of
from core.cli.task import Words, number
from core.errors import UsageError
from core.formats.bundle import Bundle
from core.formats.program import ENGINES, format_at
from deploy.devices.inventory import Device, get_device
from deploy.run.intact import check_whole
from deploy.run.job import require_program
from deploy.run.settings import Settings


def run(words: Words) -> None:
    """Build and export what is missing, measure, and print what was gained.

    Raises:
        EmulatedError: the device's times mean nothing; its candidates were printed.
        SlipwayError: of the class that names the failure; see ``docs/compare.md``.
    """
    from deploy.run import report_tuning, tuning

    program = program_of(words)
    device = get_device(words["device"])
    settings = Settings.parse(
        words,
        inputs=tuple(Path(each) for each in list_of(words["inputs"])),
        input_shapes=words["input_shapes"],
        method=words["method"],
    ).on(device)
    limit = 60 * number("time-limit", words["time_limit"], 0.1, tuning.MINUTES, whole=False)
    bundle, path = prepare(words, device, program)
    if device.emulated:
        # Where that can be seen without the device.
        where = f"the CPU that {device.name} stands for, as this machine emulates it"
        report_tuning.candidates(tuning.candidates_here(bundle, path, settings), where, words["json"])
        if not words["candidates"]:
            tuning.check_measurable(device)
    elif words["candidates"]:
        report_tuning.candidates(tuning.candidates(device, bundle, path, settings), device.name, words["json"])
    else:
        done = tuning.tune(device, bundle, path, settings, limit, again=words["again"])
        report_tuning.tuned(done, words["json"])


def prepare(words: Words, device: Device, program: Path | None) -> tuple[Bundle, Path]:
    """The bundle of the engine lean, and the program.

    Raises:
        UsageError: another engine.
    """
    from deploy.run.weights import ENGINE

    if words["engine"] not in ("", ENGINE):
        raise UsageError(
            f"The engine {words['engine']} has no choice of kernels.",
            "only the engine lean can compute a layer in several ways",
            "the same with --engine lean",
        )
    requests = [] if program else check_model(words, "pte")
    if program is not None:
        require_program(program)
        check_whole(program)
        if format_at(program) != ENGINES[ENGINE]:
            raise UsageError(
                f"{program} is an .onnx, and only .pte programs can be tuned.",
                "only the engine lean can compute a layer in several ways",
                "./inv export --model NAME, and tune the .pte that it leaves",
                [str(program)],
            )
    with installed_beside(requests):
        bundle = build_for(words["target"] or device.target, ENGINE, words["toolchain"])
        if program is None:
            from commands.export import combined

            (program,) = combined(words["model"], words["scheme"], format="pte")
    return bundle, program
