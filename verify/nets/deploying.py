"""Take the nets to devices: each program, deployed with each engine that a device has, and compared with the export's.

``./inv self.bench --nets --device local,pi,pi2,phone``. Without torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel, ConfigDict

from core.errors import SlipwayError, UnreachableError
from core.files import sha256_bytes
from core.formats.bundle import Bundle
from core.formats.program import ENGINES, load_program
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from deploy.devices.inventory import HOST, Device, get_device
from deploy.run.needs import bundle_digest
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from toolchains.targets import get_target, host_target
from verify.nets.exporting import folder_of
from verify.nets.table import Exported

SECONDS = 600.0
"""For one deploy: emulated machines are slow, and this machine may be busy."""
_ONCE = Settings(timeout=SECONDS, num_executions=1, warmup=0, weights_cache=False)
"""Outputs are compared and nothing is measured: one execution will do. Packed weights for later would take time
and room."""
PASSING = ("device-busy", "transfer", "answer")
"""Kinds of errors that say nothing about the program: the same command tries again."""


class Deployed(BaseModel):
    """A cell of the sweep: a program on a device with an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    verdict: str = ""
    """Of all outputs; empty: it did not run."""
    outside: int = 0
    """Elements beyond the tolerance."""
    largest: float = 0.0
    """Largest difference between an output and the reference, in tolerances."""
    seconds: float = 0.0
    """Of the whole deploy."""
    why: str = ""
    """Why it differs though no element is beyond the tolerance: another shape, or all elements together."""
    error: str = ""
    """Why there is no verdict: the error's kind and sentence."""

    @property
    def kind(self) -> str:
        """Of the error; empty without one."""
        return self.error.partition(":")[0]


@dataclass(frozen=True)
class Place:
    """A device with an engine."""

    device: Device
    engine: str

    @property
    def name(self) -> str:
        """``pi lean``."""
        return f"{self.device.name} {self.engine}"

    @property
    def target(self) -> str:
        """The target of the bundle that runs there."""
        return host_target().name if self.device.target == HOST else self.device.target


def places(names: str) -> list[Place]:
    """Each device with each engine for ``.pte`` that works on its target, in the given order.

    Args:
        names: of devices, with commas between them.

    Raises:
        ConfigError: no such device.
    """
    found = []
    for name in (word.strip() for word in names.split(",") if word.strip()):
        device = get_device(name)
        target = get_target(Place(device, "").target)
        found += [Place(device, one) for one in target.working_engines if ENGINES[one] == "pte"]
    return found


def summed(result: Result) -> Deployed:
    """What is kept of a deploy's result."""
    far = [
        one.max_abs / one.tolerance.atol if one.tolerance and one.tolerance.atol else one.max_abs
        for one in result.outputs
        if one.max_abs is not None
    ]
    return Deployed(
        verdict=result.verdict,
        outside=sum(one.outside for one in result.outputs),
        largest=max(far, default=0.0),
        seconds=round(sum(result.seconds.values()), 1),
        why=next((one.why for one in result.outputs if one.verdict == "differs" and one.why), ""),
    )


def _deploy(place: Place, bundle: Bundle, program: Exported) -> Deployed:
    try:
        return summed(deploy(place.device, bundle, folder_of(program), _ONCE, listeners=[]))
    except UnreachableError:
        raise  # says nothing about the program: the same command goes on here
    except SlipwayError as error:
        return Deployed(error=f"{error.kind}: {error.what} {error.cause}".strip())


def journal() -> Journal[Deployed]:
    """What was deployed from this checkout."""
    return Journal.of("nets-deployed", Deployed)


def key(place: Place, bundle: Bundle, program: Exported) -> str:
    """Digest of the program with its tolerances, the bundle and the device."""
    described = load_program(folder_of(program), verify=False)
    allowed = [described.tolerance_of(index).model_dump() for index in range(len(described.outputs))]
    return sha256_bytes(json.dumps([described.sha256, allowed, bundle_digest(bundle), place.name]).encode())


def cell_name(place: Place, program: Exported) -> str:
    """The cell's name in the journal: ``resnet18 fp32 on pi lean``."""
    return f"{program.name} on {place.name}"


def sweep(
    where: Sequence[tuple[Place, Bundle]], programs: Sequence[Exported], again: bool = False, until: float = math.inf
) -> dict[str, Deployed]:
    """Deploy each program to each place, one after another; results by `cell_name`. None begins after ``until``.

    The smallest programs come first, and each goes to all places: engines of one device share its upload.
    """
    cells = [
        sweeping.Cell(cell_name(place, one), key(place, bundle, one), partial(_deploy, place, bundle, one))
        for one in sorted(programs, key=_size)
        for place, bundle in where
    ]
    return sweeping.sweep(
        "deploying", cells, journal(), again=again, until=until,
        holds=lambda seen: seen.kind not in PASSING, remark=_remark,
    )  # fmt: skip


def _size(program: Exported) -> int:
    return load_program(folder_of(program), verify=False).size


def _remark(seen: Deployed) -> str:
    if seen.error:
        return seen.error.replace("\n", " ")
    if seen.verdict != "differs":
        return ""
    return f"DIFFERS: {seen.outside} elements, {seen.largest:.3g} tolerances" + (f"; {seen.why}" if seen.why else "")
