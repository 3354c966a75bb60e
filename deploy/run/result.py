"""The result of a run, as ``dist/results/*.json`` keeps it."""

from __future__ import annotations

import contextlib
import datetime
import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from core.errors import MismatchError
from core.files import write_atomic
from core.paths import results_dir
from deploy.devices.conditions import Conditions
from deploy.devices.facts import DeviceFacts
from deploy.run.compare import Comparison, Kept, Verdict
from deploy.run.preflight import Finding
from deploy.run.runner import RunnerResult
from deploy.store.vouch import Vouched
from toolchains.ran import Ran

EMULATED = "emulated: not a latency figure"


class BundleUsed(Kept):
    """The bundle that ran."""

    target: str
    engine: str
    engine_version: str
    toolchain: str
    digest: str
    """Its name on the device."""


class ProgramUsed(Kept):
    """The program that ran."""

    name: str
    file: str
    size: int
    sha256: str
    model: str = ""
    scheme: str = ""
    method: str = "forward"
    reference_engine: str = ""
    state: tuple[str, ...] = ()
    """What an execution changes for the next one."""
    execution: int = 0
    """Of a program with state: the execution whose outputs were compared, counted from the load."""


class MethodRan(Kept):
    """A method that ran before the measured one, once and in a process of its own."""

    name: str
    load_ms: float
    latency_ms: float
    """Of its only execution."""


class Upload(Kept):
    """Payload uploaded for this run, and payload that was there already. Bytes are file contents."""

    files: int
    bytes: int
    names: tuple[str, ...] = ()
    present_files: int
    present_bytes: int
    resumed_bytes: int = 0
    """Those of ``bytes`` that an interrupted upload had sent already."""


class Verified(Kept):
    """The evidence that the bytes that ran have these digests."""

    program: Vouched
    """The program, its own files of weights and its inputs."""
    bundle: Vouched
    """The runner and its libraries."""
    replaced: tuple[str, ...] = ()
    """Files that were found damaged on the device, and uploaded again."""


class ClassSeen(Kept):
    """A class that the first output gives a probability, the softmax of the scores."""

    name: str
    device: float
    host: float
    """By the reference."""
    model: float
    """By the float model, which quantization changes."""


class Result(Kept):
    """Everything about one run."""

    schema_version: Literal[1] = 1
    created: str
    """UTC, ISO 8601."""
    attempts: int = 1
    """Connections it took: more than one after transient errors."""
    device: str
    title: str = ""
    """The inventory's, of the device."""
    transport: str
    emulated: bool
    latency_note: str = ""
    """``emulated: not a latency figure`` on an emulated device."""
    facts: DeviceFacts
    bundle: BundleUsed
    program: ProgramUsed
    preflight: tuple[Finding, ...]
    upload: Upload
    verified: Verified | None = None
    """``None`` in results of versions that checked only files' sizes."""
    runner: RunnerResult
    conditions: Conditions = Conditions()
    """The device around the run; ``conditions.throttled`` marks a run whose times mean little."""
    methods: tuple[MethodRan, ...] = ()
    """Of a program with several methods: the others."""
    outputs: tuple[Comparison, ...]
    classes: tuple[ClassSeen, ...] = ()
    """The five likeliest on the device, of a program whose outputs have names."""
    picture: str = ""
    """What they were seen in."""
    verdict: Verdict
    seconds: dict[str, float]
    """Wall time of each step."""
    files: tuple[str, ...] = ()
    """Outputs and ETDump kept, relative to the result's own folder."""
    path: Path | None = Field(default=None, exclude=True)

    @property
    def key(self) -> str:
        """Name of its file: device, program, engine."""
        return result_key(self.device, self.program.name, self.bundle.engine)

    @property
    def ran(self) -> Ran:
        """For the record of where targets ran."""
        return Ran(
            target=self.bundle.target, engine=self.bundle.engine, engine_version=self.bundle.engine_version,
            device=self.device, title=self.title, cpu=self.facts.cpu, emulated=self.emulated,
            program=self.program.name, verdict=self.verdict, created=self.created,
        )  # fmt: skip

    def check(self) -> None:
        """Raise `MismatchError` when an output differs from its reference."""
        wrong = [output for output in self.outputs if output.verdict == "differs"]
        if wrong:
            cause = "; ".join(
                (
                    f"{output.name}: {output.why}"
                    if output.why
                    else f"{output.name}: {output.outside:,} of {output.elements:,} elements outside "
                    f"{tolerance_text(output)}, largest error {output.max_abs:.3g}"
                )
                + (f"; {output.truth}" if output.truth else "")
                for output in wrong
            )
            raise MismatchError(
                f"{len(wrong)} of {len(self.outputs)} outputs of {self.program.name} on {self.device} do not agree "
                "with the reference.",
                cause,
                f"the outputs are in {self.path.with_suffix('') if self.path else 'dist/results'}",
                [output.name for output in wrong],
            )


def tolerance_text(output: Comparison) -> str:
    """``|Δ| ≤ 1e-05 + 1e-05·|ref| (fp32)``."""
    allowed = output.tolerance
    if allowed is None:
        return "–"
    if allowed.atol == 0 and allowed.rtol == 0:
        return "exact"
    relative = f" + {allowed.rtol:g}·|ref|" if allowed.rtol else ""
    return f"{allowed.atol:g}{relative}"


_WORST_FIRST: tuple[Verdict, ...] = ("differs", "no reference", "agrees", "identical")


def overall(outputs: tuple[Comparison, ...]) -> Verdict:
    """The verdict over all outputs: the worst."""
    return min((output.verdict for output in outputs), key=_WORST_FIRST.index, default="no reference")


def result_key(device: str, program: str, engine: str) -> str:
    """A file name from three names, with only letters, digits and ``._-``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{device}-{program}-{engine}")


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(result: Result) -> Path:
    """Write ``dist/results/<key>.json`` (the latest) and the same under its time in ``history/``."""
    text = result.model_dump_json(indent=2) + "\n"
    path = results_dir() / f"{result.key}.json"
    stamp = re.sub(r"[^0-9TZ]", "", result.created)
    write_atomic(path.parent / "history" / f"{stamp}-{result.key}.json", text)
    write_atomic(path, text)
    return path


def runs() -> list[Ran]:
    """The runs whose results are here, but those that were compared with nothing and those of other versions."""
    found = []
    for path in sorted((results_dir() / "history").glob("*.json")):
        with contextlib.suppress(ValueError):  # another version's, or damaged: no run to speak of
            found.append(Result.model_validate_json(path.read_bytes()).ran)
    return [one for one in found if one.verdict != "no reference"]
