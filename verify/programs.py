"""Programs of sweeps: how the command line names them, and the processes that make them.

A process answers requests, one a line: torch is loaded once for all of them, and a crash is that of one program.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import environment
from core.cli.request import words
from core.errors import ConfigError, NotSupportedError, SlipwayError
from core.paths import IMPORTS, ROOT
from core.processes import sweep as sweeping
from core.processes.commands import ANSWER
from core.processes.sweep import Journal
from core.strict_json import Frozen
from models.lowering.progress import log_path

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAST = (3, 11)
"""The oldest Python that all packages with nets have a version for."""


def pick(known: Iterable[str], expression: str, hint: str) -> list[str]:
    """The names that ``expression`` means, in their order.

    Args:
        expression: parts of names or patterns, with commas between them: ``llama,mlp q*``; all when empty.
        hint: a command with names that exist.

    Raises:
        ConfigError: one of them names nothing.
    """
    names, parts = list(known), words(expression)

    def means(part: str, name: str) -> bool:
        return part in name or fnmatch.fnmatchcase(name, part)

    for part in parts:
        if not any(means(part, name) for name in names):
            raise ConfigError(f"No program is called {part!r}.", f"they are {', '.join(names)}", hint, [part])
    return [name for name in names if not parts or any(means(part, name) for part in parts)]


class Made(Frozen):
    """What came of a request: a cell of a sweep that makes programs."""

    folder: str
    seconds: float
    error: str = ""
    """Why there is no program; empty if there is one."""


class Maker:
    """A process that makes programs; starts with the first request, and again after a crash.

    Args:
        module: what it runs, which reads requests by `serve`.
        sets: whose packages it has on its path.
    """

    def __init__(self, module: str, sets: Sequence[str] = ()) -> None:
        self._module, self._sets = module, sets
        self._child: subprocess.Popen[str] | None = None
        self.log = log_path(module.split(".")[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        if self._sets and sys.version_info < _LEAST:
            raise NotSupportedError(
                "The packages with nets do not install here.", "some of them need Python 3.11",
                "SLIPWAY_PYTHON=python3.11",
            )  # fmt: skip
        environment.ensure_export()
        environment.idle_threads_sleep()
        packages = [os.fspath(environment.apart(one)) for one in self._sets]
        path = [os.fspath(IMPORTS), *packages, *filter(None, [os.environ.get("PYTHONPATH")])]
        # Sets of strings in the same order each time: the same programs. Nothing is downloaded: weights are random.
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as log:
                # A session of its own: only we receive Ctrl-C, and we end it.
                self._child = subprocess.Popen(
                    [sys.executable, "-m", self._module],
                    cwd=ROOT, env=self._environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    text=True, start_new_session=True,
                )  # fmt: skip
        return self._child

    def ask(self, folder: str, request: Mapping[str, object]) -> Made:
        """What came of a request; ``folder`` is what the result calls its folder."""
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
            error = f"the process that makes programs ended with {self._end()}; see {self.log.name}"
        return Made(folder=folder, seconds=round(time.monotonic() - begun, 1), error=error)


@dataclass(frozen=True)
class Wanted:
    """A program that a sweep makes."""

    name: str
    folder: Path
    key: str
    """Digest of what it is made from."""
    request: Mapping[str, object]


def make_all(what: str, module: str, sets: Sequence[str], wanted: Sequence[Wanted]) -> dict[str, Made]:
    """Make what is not there yet; results by the programs' names, in their order.

    Args:
        what: what a sweep says while it does so: ``exporting``.
        module, sets: as `Maker` takes them.
    """
    folders = {one.folder.name: one.folder for one in wanted}
    with Maker(module, sets) as maker:
        cells = [sweeping.Cell(one.name, one.key, partial(maker.ask, one.folder.name, one.request)) for one in wanted]
        return sweeping.sweep(
            what, cells, Journal.of(f"nets-{what}", Made), remark=lambda made: made.error.replace("\n", " "),
            holds=lambda made: bool(made.error) or folders[made.folder].is_dir(),
        )  # fmt: skip


def serve(work: Callable[[dict[str, Any]], Path]) -> None:
    """Do what each line of the standard input asks for, and answer with the folder or the error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what packages print must not mix with the answers
    for line in sys.stdin:
        try:
            answer = {"folder": os.fspath(work(json.loads(line)))}
        except SlipwayError as error:
            answer = {"error": f"{error.what} {error.cause}"}
        answers.write(json.dumps(answer) + "\n")
