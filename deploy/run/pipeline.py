"""Deploy a program to a device and bring its result back.

describe (here) → connect → probe → survey → preflight → upload → run → fetch → compare → result. After every failure,
Ctrl-C included, partial files do not have a final name and our processes on the device have ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from core.errors import SlipwayError
from core.formats.bundle import Bundle
from deploy.devices.conditions import mask_of
from deploy.devices.inventory import Device
from deploy.lab.labgrid import borrowed
from deploy.run import generate
from deploy.run.connect import open_device, ready
from deploy.run.events import Event, Listener, Steps
from deploy.run.inputs import check_inputs
from deploy.run.job import Job, check_engine, load_job
from deploy.run.needs import ProgramNeeds, describe, lacking
from deploy.run.result import Result
from deploy.run.session import Session
from deploy.run.settings import DEFAULT, Settings
from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline, retrying

_Session = TypeVar("_Session", bound=Session)
_Found = TypeVar("_Found")


def connected(
    device: Device,
    bundle: Bundle,
    job: Job,
    needs: ProgramNeeds,
    steps: Steps,
    settings: Settings,
    kind: Callable[[Transport], type[_Session]],
    work: Callable[[_Session, int], _Found],
) -> _Found:
    """Connect to ``device`` and do ``work``; again after transient errors.

    A lab's device is held all the time. The settings' seconds are for all attempts together. They count from the first
    connection: starting a virtual device and waiting for a lab's are not among them, and a session may move its
    deadline while it waits for another one's end.

    Args:
        kind: gives the class of a connection's session.
        work: called with the session and the number of the attempt, from 1.

    Raises:
        SlipwayError: the last attempt's.
    """
    deadline = NEVER
    attempts = 0
    held: Device | None = None

    def attempt() -> _Found:
        nonlocal deadline, attempts, held
        attempts += 1
        with steps.step("connect", f"connecting to {device.name}"):
            if held is None:
                ready(device, bundle.manifest.target)
                held = stack.enter_context(borrowed(device, settings.wait, note))
                deadline = Deadline.after(settings.timeout or device.timeout)
            transport = open_device(held, deadline)
        with transport:
            one = kind(transport)(device, bundle, job, needs, steps, deadline, transport)
            try:
                return work(one, attempts)
            finally:
                deadline = one.deadline

    def note(text: str) -> None:
        steps.tell(Event("connect", "note", text))

    def on_retry(error: SlipwayError, pause: float) -> None:
        note(f"{error.what} Trying again in {pause:.1f} s.")

    def left() -> float:
        return deadline.left()  # of this connection: an attempt may make another

    with contextlib.ExitStack() as stack:
        found: _Found = retrying(settings.retries, left, on_retry)(attempt)
        return found


def prepared(
    bundle: Bundle, path: Path, settings: Settings, compute: Callable[[Job], Job] = lambda job: job
) -> tuple[Job, ProgramNeeds]:
    """A program with its inputs, checked, and what it needs: everything before the connection. See `deploy`."""
    job = load_job(path, settings)
    check_engine(job.model.source, bundle.manifest.engine, job.program)
    needs = describe(bundle, job.model.source, job.model.sha256)
    if settings.text:
        generate.check_vocabulary(settings.text, needs.method(job.method))
    else:
        check_inputs(job, needs)
    job = job.with_weights(needs, settings.data)
    alone = job.program is None and not job.references
    return compute(job) if alone and not lacking(needs, job.method) else job, needs


def deploy(
    device: Device,
    bundle: Bundle,
    path: Path,
    settings: Settings = DEFAULT,
    *,
    compute: Callable[[Job], Job] = lambda job: job,
    listeners: Sequence[Listener] | None = None,
) -> Result:
    """Run a program on a device and compare its outputs with the reference.

    Args:
        path: an export's folder, or a program file (then the settings may have the expected outputs).
        compute: gives a program file that comes without outputs those that this machine computes; called after the
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
        job, needs = prepared(bundle, path, settings, compute)

    def kind(transport: Transport) -> type[Session]:
        from deploy.run.windows import WindowsSession

        return Session if transport.posix else WindowsSession

    return connected(
        device, bundle, job, needs, steps, settings, kind, lambda session, attempt: session.go(settings, attempt)
    )
