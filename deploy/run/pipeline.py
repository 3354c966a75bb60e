"""Deploy a program to a device and bring its result back.

describe (here) → connect → probe → survey → preflight → upload → run → fetch → compare → result. After every failure,
Ctrl-C included, partial files do not have a final name and our processes on the device have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from core.formats.bundle import Bundle
from core.formats.program import Program
from deploy.devices.conditions import mask_of
from deploy.devices.inventory import Device
from deploy.run import generate
from deploy.run.attempts import connected
from deploy.run.events import Listener, Steps
from deploy.run.inputs import check_inputs
from deploy.run.job import Computed, check_bundle, load_job
from deploy.run.needs import describe, lacking
from deploy.run.result import Result
from deploy.run.session import Session
from deploy.run.settings import DEFAULT, Settings


def deploy(
    device: Device,
    bundle: Bundle,
    path: Path,
    settings: Settings = DEFAULT,
    *,
    program: Program | None = None,
    compute: Callable[[], Computed | None] | None = None,
    listeners: Sequence[Listener] | None = None,
) -> Result:
    """Run a program on a device and compare its outputs with the reference.

    Args:
        path: an export's folder, or a program file (then the settings may have the expected outputs).
        settings: how to run it.
        program: the folder's description, if it is read already.
        compute: computes, on this machine, the outputs of a program file that comes without any; called after the
            bundle has read the program and can run it.
        listeners: called with every event; the console's when ``None``.

    Returns:
        The result, written to ``dist/results``. A difference is in its verdict; `Result.check` raises it.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    if listeners is None:
        from deploy.run.report import ConsoleListener

        listeners = [ConsoleListener()]
    steps = Steps(list(listeners))
    mask_of(settings.cpu_affinity)  # refuse a wrong list of cores first
    with steps.step("describe", "reading the program"):
        job = load_job(path, program, settings)
        check_bundle(job, bundle)
        needs = describe(bundle, job.model.source, job.model.sha256)
        if settings.text:
            generate.check_vocabulary(settings.text, needs.method(job.method))
        else:
            check_inputs(job, needs)
        job = job.with_weights(needs, settings.data)
        if compute and job.program is None and not job.references and not lacking(needs, job.method):
            found = compute()
            job = job.with_reference(found) if found else job
    return connected(
        device,
        settings.timeout or device.timeout,
        settings.retries,
        steps,
        lambda deadline, transport: Session(device, bundle, job, needs, steps, deadline, transport),
        lambda session, attempt: session.go(settings, attempt),
        bundle.manifest.target,
        settings.wait,
    )
