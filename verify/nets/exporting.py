"""Export the nets, each in a process that has their packages on its path. Without torch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from core import environment
from core.environment import bootstrap
from core.errors import NotSupportedError
from core.files import sha256_bytes, sha256_file
from core.formats.program import DESCRIPTION
from core.paths import IMPORTS, ROOT, dist_part
from core.processes import sweep as sweeping
from core.processes.commands import ANSWER
from core.processes.sweep import Journal
from models.lowering.progress import log_path
from models.request import versions
from models.zoo.schemes import get_scheme
from verify.nets.table import Exported

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST = (3, 11)
"""The oldest Python that all packages have a version for."""
COMMAND = [sys.executable, "-m"]
CODE = tuple(Path(__file__).with_name(name) for name in ("making.py", "parts.py"))
"""What makes nets."""


class Export(BaseModel):
    """A cell of the sweep: one program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    """In ``dist/nets``."""
    seconds: float
    error: str = ""
    """Why there is no program; empty if there is one."""


def folder_of(program: Exported) -> Path:
    """Where its program is: ``dist/nets/resnet18-fp32``."""
    return dist_part("nets") / program.folder


def key(program: Exported) -> str:
    """Digest of the net, the packages and the code that makes it.

    Not of the exporter's own code: a program of last week's is as good for a comparison of engines.
    """
    own = [sha256_file(file) for file in CODE]
    lock = sha256_file(bootstrap.lock_file("nets"))
    return sha256_bytes(
        json.dumps([program.net.digest, repr(get_scheme(program.scheme)), own, lock, versions()]).encode()
    )


class Exporter:
    """A process that makes and exports nets; starts with the first, and again after a crash.

    Args:
        module: what it runs, which reads requests (`verify.nets.making.serve`).
        sets: whose packages it has on its path.
    """

    def __init__(self, module: str = "verify.nets.making", sets: Sequence[str] = ("nets",)) -> None:
        self._module, self._sets = module, sets
        self._child: subprocess.Popen[str] | None = None
        self.log = log_path("nets")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            if kind is not None:
                self._child.kill()
            self._end()

    def _end(self) -> int:
        """Let the process end; its exit code."""
        child, self._child = self._child, None
        assert child and child.stdin and child.stdout
        with contextlib.suppress(OSError):
            child.stdin.close()
        code = child.wait()
        child.stdout.close()
        return code

    def _environment(self) -> Mapping[str, str]:
        if sys.version_info < _LEAST:
            raise NotSupportedError(
                "The packages with nets do not install here.", "some of them need Python 3.11",
                "SLIPWAY_PYTHON=python3.11",
            )  # fmt: skip
        environment.ensure_export()
        environment.idle_threads_sleep()
        packages = [os.fspath(environment.apart(one)) for one in self._sets]
        path = [os.fspath(IMPORTS), *packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        # Nothing is downloaded: weights are random.
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"}

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as log:
                # A session of its own: only we receive Ctrl-C, and we end it.
                self._child = subprocess.Popen(
                    [*COMMAND, self._module],
                    cwd=ROOT, env=self._environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    text=True, start_new_session=True,
                )  # fmt: skip
        return self._child

    def export(self, program: Exported) -> Export:
        """Export it, or say why that failed."""
        request = {"net": program.net.name, "scheme": program.scheme, "out": os.fspath(dist_part("nets"))}
        return self.ask(program.folder, request)

    def ask(self, folder: str, request: Mapping[str, object]) -> Export:
        """What came of a request."""
        begun = time.monotonic()
        child = self._running()
        assert child.stdin and child.stdout
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            line = child.stdout.readline(ANSWER)
        except BrokenPipeError:
            line = ""
        if line:
            error = str(json.loads(line).get("error", ""))
        else:
            error = f"the exporter's process ended with {self._end()}; see {self.log.name}"
        return Export(folder=folder, seconds=round(time.monotonic() - begun, 1), error=error)


def journal() -> Journal[Export]:
    """What was exported on this machine."""
    return Journal.of("nets-export", Export)


def export(programs: Sequence[Exported]) -> dict[str, Export]:
    """Export what is not there yet; results by the programs' names, in their order."""
    environment.ensure_export()  # before the keys, which name its versions
    with Exporter() as exporter:
        cells = [sweeping.Cell(one.name, key(one), partial(exporter.export, one)) for one in programs]
        return sweeping.sweep("exporting", cells, journal(), holds=_holds, remark=remark)


def _holds(made: Export) -> bool:
    return bool(made.error) or (dist_part("nets") / made.folder / DESCRIPTION).is_file()


def remark(made: Export) -> str:
    """What the sweep says of it."""
    return made.error.replace("\n", " ")
