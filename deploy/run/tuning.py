"""``./inv tune``: have a device measure what could compute each layer of a program, and keep the fastest there.

The device's own runner measures (``--tune``, docs/compare.md), a slice of time after another, so that a lost connection
or Ctrl-C costs seconds: measurements are kept in the device's store, and the same command continues. Our side only
starts the slices, shows how far they are, and compares the outputs of the outcome with the reference.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from core.errors import AnswerError, EmulatedError, MismatchError, NotSupportedError
from core.formats.bundle import Bundle, runner_in
from core.plain import plain_values
from core.processes.bounded import run_bounded
from core.strict_json import JsonError, parse_json, validated
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.devices.roots import device_root
from deploy.run import collect, runner
from deploy.run.attempts import connected
from deploy.run.events import Listener, Steps
from deploy.run.inputs import check_inputs
from deploy.run.job import Job, check_bundle, load_job
from deploy.run.needs import describe, limits_for, runner_here
from deploy.run.result import overall
from deploy.run.runner import RESULT_LIMIT, Count, ListedKernel, Milliseconds
from deploy.run.session import Session
from deploy.run.settings import Settings
from deploy.run.tuned import tuned_name
from deploy.run.weights import ENGINE
from deploy.store.store import Store
from deploy.transport import hearing
from deploy.transport.base import run

MINUTES = 10.0
"""Time limit of the measurement, unless another is given."""
SLICE = 20.0
"""Seconds of measurement by one process on the device."""
_Model = TypeVar("_Model", bound=BaseModel)
_Found = TypeVar("_Found")
_PHASES = {
    "threads": "numbers of threads",
    "layers": "kernels",
    "checks": "the fastest kernels again",
    "comparison": "the outcome, in turns",
}


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Candidate(_Answer):
    """A kernel that was measured for a layer."""

    choice: str
    rejected: bool = False
    """It gave other outputs than the engine's own choice, beyond the tolerance."""
    us: Milliseconds = 0.0
    """Median of its executions, in microseconds; 0: not measured."""
    samples: Count = 0


class Layer(_Answer):
    """A layer with the kernel that was found to be the fastest."""

    layer: str
    node: str = ""
    own: str
    """The engine's own choice."""
    choice: str
    own_us: Milliseconds = 0.0
    tuned_us: Milliseconds = 0.0
    candidates: tuple[Candidate, ...] = ()


class Run(_Answer):
    """Executions with a number of threads."""

    threads: Count
    ms: Milliseconds = 0.0
    samples: Count = 0


class Tuning(_Answer):
    """What the runner on the device measured."""

    phase: Literal["threads", "layers", "checks", "comparison", "done"]
    progress: float = Field(ge=0, le=1)
    already: bool = False
    """It had been measured before; nothing was measured now."""
    kept: bool = False
    why: str = ""
    """Why nothing was kept."""
    own_threads: Count = 0
    threads: Count = 0
    """The fastest number of threads; 0: it was given, not measured."""
    own_ms: Milliseconds = 0.0
    """Median of an execution with the engine's own choices."""
    tuned_ms: Milliseconds = 0.0
    pairs: Count = 0
    """Comparisons of both, in turns."""
    wins: Count = 0
    """Those in which the tuned kernels were faster."""
    runs: tuple[Run, ...] = ()
    layers: tuple[Layer, ...] = ()


class _Whole(_Answer):
    tuning: Tuning


class Tuned(BaseModel):
    """The outcome of ``./inv tune``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    program: str
    sha256: str
    target: str
    engine: str
    bundle: str
    """The bundle's digest."""
    facts: DeviceFacts
    file: str
    """The file with the choices, below the device's root."""
    seconds: float
    tuning: Tuning
    verdict: str = ""
    """Of the tuned program's outputs against the reference; empty if nothing was kept now."""


class TuningSession(Session):
    """One connection that measures."""

    def tune(self, settings: Settings, limit: float, again: bool) -> Tuned:
        """From the probe to the file on the device.

        Args:
            limit: seconds of measurement; the comparison at the end comes after them.
            again: measure anew, whatever is there.
        """
        begun = time.monotonic()
        verdict = ""
        with Store(self.transport, device_root(self.device)) as store, self._tidy(store, settings):
            facts, _, survey, voucher = self.arrive(store, settings)
            upload = self._upload(store, voucher, survey, self._missing(survey))
            name = self.tuned
            if again:
                store.discard([name, f"{name}.part"], self.deadline)
            found = self._measured(store, settings, name, limit)
            if found.kept and not found.already:
                verdict = self._compared(store, settings, name)
            with self.steps.step("settle"):
                self._settle(store, survey, grown=upload.bytes > 0)
        return Tuned(
            device=self.device.name,
            program=self.job.name,
            sha256=self.job.model.sha256,
            target=self.bundle.manifest.target,
            engine=self.bundle.manifest.engine,
            bundle=self.digest,
            facts=facts,
            file=name,
            seconds=round(time.monotonic() - begun, 1),
            tuning=found,
            verdict=verdict,
        )

    def candidates(self, settings: Settings) -> tuple[ListedKernel, ...]:
        """What could compute each layer on the device; nothing is measured."""
        with Store(self.transport, device_root(self.device)) as store, self._tidy(store, settings):
            _, _, survey, voucher = self.arrive(store, settings)
            self._upload(store, voucher, survey, self._missing(survey))
            said = self._ask_runner(store, self._argv(store, ["--describe", "--kernels"]), "listing the kernels")
        return listed(said, self.job.method)

    def _argv(self, store: Store, flags: Sequence[str]) -> list[str]:
        words = [runner_in(self.bundle.path), f"--model_path={self.above}/{self.job.model_name}", "--json", *flags]
        if self.job.data_name:
            words.append(f"--data_path={self.above}/{self.job.data_name}")
        return self._words(store, words)

    def _measured(self, store: Store, settings: Settings, name: str, limit: float) -> Tuning:
        flags = [f"--tune={store.path(name)}", f"--method_name={self.job.method}"]
        if self.job.input_names:
            flags.append(f"--inputs={','.join(f'{self.above}/{each}' for each in self.job.input_names)}")
        if self.job.shapes:
            flags.append(f"--input_shapes={self.job.shapes}")
        if settings.threads:
            flags.append(f"--cpu_threads={settings.threads}")
        end = time.monotonic() + limit
        text = f"measuring {self.job.name} on {self.device.name}"
        while True:
            left = end - time.monotonic()
            own = ["--tune_finish"] if left <= 0 else [f"--tune_seconds={max(1, round(min(SLICE, left)))}"]
            with self.steps.step("measure", text):
                store.lock.check()
                said = self._ask_runner(store, self._argv(store, [*flags, *own]), text)
            found = _parsed(_Whole, said).tuning
            if found.phase == "done":
                return found
            if left <= 0:
                raise AnswerError(
                    f"The runner on {self.device.name} did not end its measurement.",
                    f"it was still at: {_PHASES[found.phase]}",
                    "the same command again: it continues from there",
                )
            text = (
                f"measuring {self.job.name} on {self.device.name}: {_PHASES[found.phase]}, "
                f"{100 * found.progress:.0f} %, at most {max(0, end - time.monotonic()):.0f} s more"
            )

    def _compared(self, store: Store, settings: Settings, name: str) -> str:
        """Run the tuned program as later deploys do; what does not agree with the reference is not kept."""
        kept = False
        try:
            answer = self._run(store, settings)
            with tempfile.TemporaryDirectory() as folder:
                collect.fetch(self.transport, store, answer, self.sent, Path(folder), False, self.deadline)
                outputs = collect.compare_all(answer, Path(folder), self.job.references, self.job.tolerances)
            verdict = overall(outputs)
            kept = verdict != "differs"
        finally:
            if not kept:
                with contextlib.suppress(Exception):
                    store.discard([name], self.deadline)
        if not kept:
            raise MismatchError(
                f"The outputs of {self.job.name} with the tuned kernels do not agree with the reference.",
                "a kernel computes otherwise on this device; the choices were removed",
                f"./inv deploy --device {self.device.name} runs with the engine's own choices",
            )
        return verdict

    def _ask_runner(self, store: Store, argv: Sequence[str], doing: str) -> bytes:
        done = run(
            self.transport,
            list(argv),
            cwd=store.run_folder,
            pidfile=store.pidfile,
            deadline=self.deadline,
            doing=doing,
            check=False,
            most=hearing.RUN,
        )
        if done.code != 0:
            text = done.stderr.decode(errors="replace")
            raise runner.failure(done.code, text, runner.error_in(done.stdout), self.device.name)
        return done.stdout


class _Method(_Answer):
    name: str
    kernels: tuple[ListedKernel, ...] = ()


class _Described(_Answer):
    methods: tuple[_Method, ...]


def listed(said: bytes, method: str) -> tuple[ListedKernel, ...]:
    """The layers in a runner's description of a program, with what could compute them.

    Raises:
        AnswerError: it is no description.
    """
    return next((each.kernels for each in _parsed(_Described, said).methods if each.name == method), ())


def _parsed(kind: type[_Model], said: bytes) -> _Model:
    try:
        return validated(kind, plain_values(parse_json(said, limit=RESULT_LIMIT)))
    except JsonError as error:
        raise AnswerError(
            "The runner's measurements cannot be read.", str(error)[:600], "./inv build --force"
        ) from error


def check_measurable(device: Device) -> None:
    """Refuse to measure where times are an emulator's.

    Raises:
        EmulatedError: it is an emulated device.
    """
    if device.emulated:
        raise EmulatedError(
            f"{device.name} is emulated: nothing was measured.",
            "an emulator's times say nothing about a processor's, so a choice by them would be wrong on a real one",
            "./inv tune --device NAME with a real device; --candidates lists what could be measured",
            [device.name],
        )


def prepared(bundle: Bundle, path: Path, settings: Settings) -> Job:
    """The job for a program whose kernels can be chosen.

    Raises:
        NotSupportedError: another engine than lean. ProgramError, UsageError: see `load_job`.
    """
    if bundle.manifest.engine != ENGINE:
        raise NotSupportedError(
            f"The engine {bundle.manifest.engine} has no choice of kernels.",
            "only the engine lean can compute a layer in several ways",
            "the same with --engine lean",
        )
    return load_job(path, None, settings)


def tune(
    device: Device,
    bundle: Bundle,
    path: Path,
    settings: Settings,
    limit: float,
    *,
    again: bool = False,
    listeners: Sequence[Listener] | None = None,
) -> Tuned:
    """Measure ``path`` on ``device`` for at most ``limit`` seconds, and keep what is faster beyond noise.

    Raises:
        EmulatedError: its times mean nothing. SlipwayError: of the class that names the failure.
    """
    check_measurable(device)
    return _connected(
        device, bundle, path, settings, limit, listeners, lambda session: session.tune(settings, limit, again)
    )


def candidates(device: Device, bundle: Bundle, path: Path, settings: Settings) -> tuple[ListedKernel, ...]:
    """What could compute each layer of ``path`` on ``device``."""
    return _connected(device, bundle, path, settings, 0, None, lambda session: session.candidates(settings))


def candidates_here(bundle: Bundle, path: Path, settings: Settings) -> tuple[ListedKernel, ...]:
    """The same on this machine's emulated CPU, without any device.

    Raises:
        SlipwayError: see `describe` and `prepared`.
    """
    job = prepared(bundle, path, settings)
    argv = [*runner_here(bundle), f"--model_path={job.model.source}", "--describe", "--kernels", "--json"]
    done = run_bounded(argv, limits_for(job.model.source), f"Reading {job.model.source.name}")
    if done.returncode != 0:
        raise runner.failure(done.returncode, done.stderr, runner.error_in(done.stdout), "this machine", here=True)
    return listed(done.stdout.encode(), job.method)


def _connected(
    device: Device,
    bundle: Bundle,
    path: Path,
    settings: Settings,
    limit: float,
    listeners: Sequence[Listener] | None,
    work: Callable[[TuningSession], _Found],
) -> _Found:
    """``work`` over a connection to ``device``; again after transient errors."""
    if listeners is None:
        from deploy.run.report import ConsoleListener

        listeners = [ConsoleListener()]
    steps = Steps(list(listeners))
    with steps.step("describe", "reading the program"):
        job = prepared(bundle, path, settings)
        check_bundle(job, bundle)
        needs = describe(bundle, job.model.source, job.model.sha256)
        check_inputs(job, needs)
        job = job.with_weights(needs, settings.data)
    if not tuned_name(settings, device, bundle, job):
        raise NotSupportedError(
            f"The method {job.method!r} cannot be tuned.",
            "its name cannot be part of a file's name",
            "export the method with a name of letters, digits and _",
        )
    return connected(
        device,
        limit + (settings.timeout or device.timeout),
        settings.retries,
        steps,
        lambda deadline, transport: TuningSession(device, bundle, job, needs, steps, deadline, transport),
        lambda session, _attempt: work(session),
        bundle.manifest.target,
        settings.wait,
    )
