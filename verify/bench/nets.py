"""``nets.toml`` as objects, and the export of its nets. No torch."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core import environment
from core.environment import bootstrap
from core.errors import ConfigError
from core.files import sha256_bytes, sha256_file
from core.formats.program import DESCRIPTION
from core.paths import dist_part
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from models.request import versions
from models.zoo.schemes import get_scheme, read
from verify.programs import Made, Maker, pick

TABLE = Path(__file__).with_name("nets.toml")
FLOAT = "float"
"""``floatN.npy`` beside a program: the float model's outputs."""
_INPUT = re.compile(r"(\d+(?:x\d+)*)(?: <(\d+))?")


@dataclass(frozen=True)
class Input:
    """What a net is called with: noise, or whole numbers."""

    shape: tuple[int, ...]
    below: int = 0
    """Whole numbers from 0 up to this; 0: float32 noise."""

    @classmethod
    def of(cls, text: str) -> Input:
        """``1x3x224x224`` or ``1x64 <1000``.

        Raises:
            ConfigError: it is neither.
        """
        found = _INPUT.fullmatch(text)
        if not found:
            raise ConfigError(
                f"{text!r} does not describe an input.", "", 'give "1x3x224x224", or "1x64 <1000" for whole numbers'
            )
        return cls(tuple(int(size) for size in found[1].split("x")), int(found[2] or 0))


@dataclass(frozen=True)
class Net:
    """A row of the table."""

    name: str
    make: str
    """``module:name``."""
    inputs: dict[str, str]
    """The forward's arguments, each as `Input.of` reads it."""
    schemes: tuple[str, ...]
    config: str = ""
    settings: dict[str, Any] | None = None
    take: tuple[str, ...] = ()
    """Names of the results that are outputs; all tensors when empty."""

    @property
    def digest(self) -> str:
        """Of everything in the row that decides its program, the scheme apart."""
        row = [self.make, self.config, self.settings or {}, list(self.inputs.items()), self.take]
        return sha256_bytes(json.dumps(row, sort_keys=True).encode())


@dataclass(frozen=True)
class Exported:
    """A net in a scheme."""

    net: Net
    scheme: str

    @property
    def name(self) -> str:
        """``resnet18 fp32``."""
        return f"{self.net.name} {self.scheme}"

    @property
    def folder(self) -> str:
        """``resnet18-fp32``."""
        return f"{self.net.name}-{self.scheme}"


@functools.cache
def load() -> dict[str, Net]:
    """All nets by name, in the table's order.

    Raises:
        ConfigError: an unknown scheme or a malformed input.
    """
    found = {}
    for section in read(TABLE).values():
        nets = section.pop("nets")
        for name, own in nets.items():
            row = {**section, **own}
            row["make"] += name if row["make"].endswith(":") else ""
            net = Net(name=name, **{**row, "schemes": tuple(row["schemes"]), "take": tuple(row.get("take", ()))})
            for scheme in net.schemes:
                get_scheme(scheme)
            for text in net.inputs.values():
                Input.of(text)
            found[name] = net
    return found


def programs() -> list[Exported]:
    """Every net in every scheme that makes sense for it."""
    return [Exported(net, scheme) for net in load().values() for scheme in net.schemes]


def choose(expression: str) -> list[Exported]:
    """The programs that ``expression`` names.

    Args:
        expression: as `verify.programs.pick` reads it: ``resnet18``, ``mobilenet* qs8``, ``* fp16``.

    Raises:
        ConfigError: one of them names nothing.
    """
    known = {one.name: one for one in programs()}
    return [known[name] for name in pick(known, expression, "./inv self.bench --what nets --only 'resnet18,* qs8'")]


CODE = (Path(__file__).with_name("making.py"),)
"""What makes nets."""


def folder_of(program: Exported) -> Path:
    """Where its program is: ``dist/nets/resnet18-fp32``."""
    return dist_part("nets") / program.folder


def key(program: Exported) -> str:
    """Digest of the net, the packages and the code that makes it.

    Not of the exporter's own code: a program of last week's is as good for a comparison of engines. ``--again`` exports
    anew.
    """
    own = [sha256_file(file) for file in CODE]
    lock = sha256_file(bootstrap.lock_file("nets"))
    return sha256_bytes(
        json.dumps([program.net.digest, repr(get_scheme(program.scheme)), own, lock, versions()]).encode()
    )


def export(programs: Sequence[Exported]) -> dict[str, Made]:
    """Export what is not there yet; results by the programs' names, in their order."""
    environment.ensure_export()  # before the keys, which name its versions
    with Maker("verify.bench.making", ("nets",)) as maker:

        def work(one: Exported) -> Made:
            return maker.ask(one.folder, {"net": one.net.name, "scheme": one.scheme, "out": str(dist_part("nets"))})

        cells = [sweeping.Cell(one.name, key(one), partial(work, one)) for one in programs]
        return sweeping.sweep(
            "exporting", cells, Journal.of("nets-export", Made), remark=lambda made: made.remark,
            holds=lambda made: bool(made.error) or (dist_part("nets") / made.folder / DESCRIPTION).is_file(),
        )  # fmt: skip
