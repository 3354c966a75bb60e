"""The way of a program to a device and of its result back.

describe (here) → connect → probe → survey → preflight → upload → run → fetch → compare → result. Whatever goes
wrong, Ctrl-C included, nothing partial keeps a final name and nothing of ours goes on running on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from core.bundle import Bundle
from core.errors import SlipwayError
from core.program import Program
from deploy.devices.conditions import mask_of
from deploy.devices.inventory import Device
from deploy.run.connect import open_device, ready
from deploy.run.events import Event, Listener, Steps
from deploy.run.inputs import check_inputs
from deploy.run.job import Computed, check_bundle, load_job
from deploy.run.needs import describe, lacking
from deploy.run.result import Result
from deploy.run.session import Session
from deploy.run.settings import Options
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.retry import retrying

__all__ = ["RETRIES", "deploy"]

RETRIES = 2
"""Further attempts after a transient error."""


def deploy(
    device: Device,
    bundle: Bundle,
    where: Path,
    program: Program | None = None,
    *,
    num_executions: int = 10,
    warmup: int = 1,
    threads: int = 0,
    timeout: float = 0,
    etdump: bool = False,
    method: str = "",
    inputs: Sequence[Path] = (),
    input_shapes: str = "",
    expected: Sequence[Path] = (),
    keep_run: bool = False,
    wait: float = 300.0,
    retries: int = RETRIES,
    engine_flags: Sequence[str] = (),
    compute: Callable[[], Computed | None] | None = None,
    pin_governor: str = "",
    cpu_affinity: str = "",
    cooldown: float = 0.0,
    listeners: Sequence[Listener] | None = None,
) -> Result:
    """Run a program on a device and compare what it gives with the reference.

    Args:
        where: a folder that an export left, or a program file (then there is no reference unless ``expected``).
        program: the folder's description, if it is read already.
        threads: on the device; 0 leaves the choice to the runner (physical cores).
        timeout: seconds from the first attempt to connect to the last byte; 0 takes the device's own.
        etdump: bring back ``run.etdp``.
        inputs, input_shapes, expected, method: see `deploy.run.job.load_job`.
        keep_run: leave the run's folder on the device, as ``runs/kept-…``.
        wait: seconds to wait for a device that another deploy uses; they do not count towards ``timeout``.
        pin_governor: CPU frequency governor for the run (``performance``), set back afterwards, even on failure.
        cpu_affinity: cores to keep the run to, ``0,2-3``.
        cooldown: degrees Celsius to which the device may cool down before the run; 0 does not wait.
        retries: further attempts, each on a connection of its own, after an error that may pass.
        engine_flags: the runner's, of those that only some engines have: ``--provider=cpu``.
        compute: gives the outputs of a program file that comes without any, computed on this machine; called when
            the bundle has read the program and lacks nothing for it.
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
    mask_of(cpu_affinity)  # a list of cores that is none is told before anything is done
    with steps.step("describe", "reading the program"):
        job = load_job(where, program, inputs=inputs, shapes=input_shapes, expected=expected, method=method)
        check_bundle(job, bundle)
        needs = describe(bundle, job.model.source, job.model.sha256)
        check_inputs(job, needs)
        job = job.with_data(needs.program.data_files)
        if compute and job.program is None and not job.references and not lacking(needs, job.method):
            found = compute()
            job = job.with_reference(found) if found else job
    options = Options(
        num_executions, warmup, threads, etdump, keep_run, wait, tuple(engine_flags),
        governor=pin_governor, cores=cpu_affinity, cooldown=cooldown,
    )  # fmt: skip
    deadline = NEVER
    attempts = 0

    def attempt() -> Result:
        nonlocal deadline, attempts
        attempts += 1
        with steps.step("connect", f"connecting to {device.name}"):
            if deadline is NEVER:
                ready(device)
                deadline = Deadline.after(timeout or device.timeout)
            transport = open_device(device, deadline)
        with transport:
            session = Session(device, bundle, job, needs, steps, deadline, transport)
            try:
                return session.go(options, attempts)
            finally:
                deadline = session.deadline

    def told(error: SlipwayError, pause: float) -> None:
        steps.tell(Event("connect", "note", f"{error.what} Trying again in {pause:.1f} s."))

    def left() -> float:
        return deadline.left()  # of the present one: an attempt may make another

    result: Result = retrying(retries, left, told)(attempt)
    return result
