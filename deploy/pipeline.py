"""The way of a program to a device and of its result back.

describe (here) → connect → probe → survey → preflight → upload → run → fetch → compare → result. Whatever goes
wrong, Ctrl-C included, nothing partial keeps a final name and nothing of ours goes on running on the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.bundle import RUNNER, Bundle
from core.errors import SlipwayError
from core.files import locked, new_folder
from core.paths import results_dir
from core.program import Program
from deploy import collect, preflight, runner
from deploy.compare import Comparison
from deploy.deadline import NEVER, Deadline
from deploy.events import Listener, Step, Steps
from deploy.facts import DeviceFacts
from deploy.inventory import Device
from deploy.job import Job, load_job
from deploy.needs import ProgramNeeds, bundle_digest, describe
from deploy.preflight import Finding
from deploy.probe import probe
from deploy.result import EMULATED, BundleUsed, ProgramUsed, Result, Upload, now, overall, result_key, write
from deploy.store import Blob, Store, Survey
from deploy.transport import Transport, run

_CLEANUP = 20.0
"""Seconds for tidying up on the device."""
_DEFAULT_ROOT = ".slipway"


def open_device(device: Device, deadline: Deadline = NEVER) -> Transport:
    """Connect to ``device``; a virtual one is started first. Use it in a ``with`` block.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    if device.transport == "local":
        from deploy.local import LocalTransport

        return LocalTransport(device.name)
    if device.transport == "adb":
        from deploy.adb import open_adb

        return open_adb(device, deadline)
    from deploy.ssh import open_ssh

    return open_ssh(device, deadline)


def device_root(device: Device) -> str:
    """Where ``device`` keeps Slipway's files: the inventory's ``root``, or the place its transport has for that."""
    if device.root:
        return device.root
    if device.transport == "local":
        from core.paths import cache_dir

        return str(cache_dir("devices", device.name))
    if device.transport == "adb":
        from deploy.adb import HOME

        return f"{HOME}/slipway"
    return _DEFAULT_ROOT


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
    listeners: Sequence[Listener] | None = None,
) -> Result:
    """Run a program on a device and compare what it gives with the reference.

    Args:
        where: a folder that an export left, or a ``.pte`` file (then there is no reference unless ``expected``).
        program: the folder's description, if it is read already.
        threads: on the device; 0 leaves the choice to the runner (physical cores).
        timeout: seconds from the connection to the last byte; 0 takes the device's own.
        etdump: bring back ``run.etdp``.
        inputs, input_shapes, expected, method: see `deploy.job.load_job`.
        keep_run: leave the run's folder on the device, as ``runs/kept-…``.
        listeners: called with every event; the console's when ``None``.

    Returns:
        The result, written to ``dist/results``. A difference is in its verdict; `Result.check` raises it.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    if listeners is None:
        from deploy.report import ConsoleListener

        listeners = [ConsoleListener()]
    steps = Steps(list(listeners))
    with steps.step("describe", "reading the program"):
        job = load_job(where, program, inputs=inputs, shapes=input_shapes, expected=expected, method=method)
        needs = describe(bundle, job.model.source, job.model.sha256)
    with steps.step("connect", f"connecting to {device.name}"):
        transport = open_device(device)
    deadline = Deadline.after(timeout or device.timeout)
    session = _Session(device, bundle, job, needs, steps, deadline, transport)
    options = _Options(num_executions, warmup, threads, etdump, keep_run)
    with transport:
        return session.go(options)


class _Options:
    """How to run."""

    def __init__(self, executions: int, warmup: int, threads: int, etdump: bool, keep_run: bool) -> None:
        self.executions, self.warmup, self.threads = executions, warmup, threads
        self.etdump, self.keep_run = etdump, keep_run


class _Session:
    """One deploy over one connection."""

    def __init__(
        self,
        device: Device,
        bundle: Bundle,
        job: Job,
        needs: ProgramNeeds,
        steps: Steps,
        deadline: Deadline,
        transport: Transport,
    ) -> None:
        self.device, self.bundle, self.job, self.needs = device, bundle, job, needs
        self.steps, self.deadline, self.transport = steps, deadline, transport
        self.digest = bundle_digest(bundle)
        self.home = f"bundles/{self.digest}"
        self.parts = {
            entry.path: Blob(bundle.path / entry.path, entry.sha256, entry.size, entry.executable)
            for entry in bundle.manifest.files
            if entry.path.startswith(("bin/", "lib/"))  # licences stay with whoever distributes the bundle
        }

    def go(self, options: _Options) -> Result:
        """From the probe to the written result."""
        with self.steps.step("probe", "asking the device what it is"):
            facts = self._probe()
        with Store(self.transport, facts.root) as store, self._tidy(store, options):
            with self.steps.step("survey", "looking at what is there"):
                survey = store.survey(self._names(), self.deadline)
                if survey.stale:
                    store.discard(survey.stale, self.deadline)
                    facts = self._probe()  # what was removed is free space now
            missing, placed = self._missing(survey)
            with self.steps.step("preflight") as step:
                found = self._preflight(facts, missing, step)
            upload = self._upload(store, missing, placed)
            answer = self._run(store, options)
            key = result_key(self.device.name, self.job.name, self.bundle.manifest.engine)
            with locked(f"result-{key}"), new_folder(results_dir() / key) as folder:
                with self.steps.step("fetch", "fetching the outputs"):
                    files = collect.fetch(self.transport, store, answer, folder, options.etdump, self.deadline)
                with self.steps.step("compare"):
                    outputs = collect.compare_all(answer, folder, self.job.references, self.job.tolerances)
        result = self._result(facts, found, upload, answer, outputs, tuple(f"{key}/{name}" for name in files))
        return result.model_copy(update={"path": write(result)})

    def _probe(self) -> DeviceFacts:
        return probe(self.transport, device_root(self.device), self.bundle.manifest.needs, self.deadline)

    @contextlib.contextmanager
    def _tidy(self, store: Store, options: _Options) -> Iterator[None]:
        """Remove the run's folder afterwards, and after a failure every unfinished file too."""
        try:
            yield
        except BaseException:
            store.abandon(Deadline.after(_CLEANUP))
            raise
        with contextlib.suppress(SlipwayError):  # the result is here: what stays behind, the next deploy removes
            if options.keep_run:
                store.keep(Deadline.after(_CLEANUP))
            else:
                store.discard([f"runs/{store.owner}"], Deadline.after(_CLEANUP))

    def _names(self) -> list[str]:
        placed = [f"{self.home}/{path}" for path in self.parts]
        return [*placed, *(f"store/{blob.sha256}" for blob in (*self.parts.values(), *self.job.files.values()))]

    def _missing(self, survey: Survey) -> tuple[list[Blob], bool]:
        """What must be uploaded, and whether the bundle is in its place already."""
        placed = all(survey.sizes.get(f"{self.home}/{path}") == blob.size for path, blob in self.parts.items())
        wanted = [*([] if placed else self.parts.values()), *self.job.files.values()]
        missing = {blob.sha256: blob for blob in wanted if survey.sizes.get(f"store/{blob.sha256}") != blob.size}
        return list(missing.values()), placed

    def _preflight(self, facts: DeviceFacts, missing: Sequence[Blob], step: Step) -> list[Finding]:
        found = preflight.check(
            self.bundle,
            facts,
            self.needs,
            self.job.method,
            upload_bytes=sum(blob.size for blob in missing),
            program_bytes=self.job.model.size,
        )
        step.show(found)
        error = preflight.failure(found, self.device, self.bundle)
        if error is not None:
            raise error
        return found

    def _upload(self, store: Store, missing: Sequence[Blob], placed: bool) -> Upload:
        total = sum(blob.size for blob in missing)
        everything = {blob.sha256: blob.size for blob in (*self.parts.values(), *self.job.files.values())}
        present = {
            digest: size for digest, size in everything.items() if digest not in {blob.sha256 for blob in missing}
        }
        text = f"uploading {preflight.files(len(missing))} to {self.device.name}" if missing else ""
        with self.steps.step("upload", text) as step:
            done = 0

            def progress(count: int) -> None:
                nonlocal done
                done += count
                step.progress(done, total)

            if missing:
                store.upload(missing, progress, self.deadline)
            if not placed:
                store.arrange(self.home, self.parts, self.deadline)
            step.outcome = (
                f"uploaded {preflight.files(len(missing))}, {preflight.size(total)}"
                if missing
                else f"nothing to upload: 0 bytes of payload, {preflight.size(sum(present.values()))} were there"
            )
        return Upload(
            files=len(missing),
            bytes=total,
            names=tuple(blob.source.name for blob in missing),
            present_files=len(present),
            present_bytes=sum(present.values()),
        )

    def _run(self, store: Store, options: _Options) -> runner.RunnerResult:
        argv = runner.command(
            store.path(f"{self.home}/{RUNNER}"),
            inputs=self.job.input_names,
            shapes=self.job.shapes,
            method=self.job.method,
            executions=options.executions,
            warmup=options.warmup,
            threads=options.threads,
            etdump=options.etdump,
        )
        with self.steps.step("run", f"running {self.job.name} on {self.device.name}"):
            store.arrange(f"runs/{store.owner}", self.job.files, self.deadline)
            done = run(
                self.transport,
                argv,
                cwd=store.run_folder,
                pidfile=store.pidfile,
                deadline=self.deadline,
                doing=f"running {self.job.name} on {self.device.name}",
                check=False,
            )
            if done.code != 0:
                raise runner.failure(
                    done.code,
                    done.message,
                    runner.error_in(collect.read_result(self.transport, store, self.deadline)),
                    self.device.name,
                )
            return runner.parse_result(collect.read_result(self.transport, store, self.deadline))

    def _result(
        self,
        facts: DeviceFacts,
        found: Sequence[Finding],
        upload: Upload,
        answer: runner.RunnerResult,
        outputs: tuple[Comparison, ...],
        files: tuple[str, ...],
    ) -> Result:
        manifest, program = self.bundle.manifest, self.job.program
        return Result(
            created=now(),
            device=self.device.name,
            transport=self.device.transport,
            emulated=self.device.emulated,
            latency_note=EMULATED if self.device.emulated else "",
            facts=facts,
            bundle=BundleUsed(
                target=manifest.target,
                engine=manifest.engine,
                engine_version=manifest.offers.engine_version,
                toolchain=manifest.toolchain,
                digest=self.digest,
            ),
            program=ProgramUsed(
                name=self.job.name,
                file=self.job.model.source.name,
                size=self.job.model.size,
                sha256=self.job.model.sha256,
                model=program.model if program else "",
                scheme=program.scheme if program else "",
                method=self.job.method,
                reference_engine=program.reference_engine if program and self.job.references else "",
            ),
            preflight=tuple(found),
            upload=upload,
            runner=answer,
            outputs=outputs,
            verdict=overall(outputs),
            seconds=dict(self.steps.seconds),
            files=files,
        )
