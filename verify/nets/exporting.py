"""Export the nets, in a process that has their packages on its path. Without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from core import environment
from core.environment import bootstrap
from core.files import sha256_bytes, sha256_file
from core.formats.program import DESCRIPTION
from core.paths import dist_part
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from models.request import versions
from models.zoo.schemes import get_scheme
from verify.nets.table import Exported
from verify.programs import Made, Maker

CODE = tuple(Path(__file__).with_name(name) for name in ("making.py", "parts.py"))
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


def export(programs: Sequence[Exported], again: bool = False) -> dict[str, Made]:
    """Export what is not there yet; results by the programs' names, in their order."""
    environment.ensure_export()  # before the keys, which name its versions
    with Maker("verify.nets.making", ("nets",)) as maker:

        def work(one: Exported) -> Made:
            return maker.ask(one.folder, {"net": one.net.name, "scheme": one.scheme, "out": str(dist_part("nets"))})

        cells = [sweeping.Cell(one.name, key(one), partial(work, one)) for one in programs]
        return sweeping.sweep(
            "exporting", cells, Journal.of("nets-export", Made), again=again, remark=lambda made: made.remark,
            holds=lambda made: bool(made.error) or (dist_part("nets") / made.folder / DESCRIPTION).is_file(),
        )  # fmt: skip
