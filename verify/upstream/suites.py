"""Every program that upstream's own tests serialize, with inputs and what upstream's runtime computes: kept, resumable.

Upstream's tests run in processes of their own (`verify.upstream.worker`). What a test gave is kept in the cache by the
exporter's versions and by our collecting code, a test at a time, so that an interrupted collection can continue. The
programs of `verify.sound` are kept in the same way, as tests of ours.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import console
from core.cli.request import words
from core.errors import ConfigError, ExportError
from core.files import locked, sha256_bytes, write_json
from core.paths import ROOT, cache_dir

_OWN = (
    "verify/upstream/worker.py",
    "models/lowering/shortcuts.py",
    "models/loading/reference.py",
    "models/reference/tolerances.py",
    "models/lowering/graphs.py",
)
_SOUND = ("verify/operators/lowering.py", "verify/sound/making.py")
"""What decides about our own programs, with the modules of their family."""
_RUNTIME = tuple(f"verify/operators/{name}.py" for name in ("programs", "aliases", "given"))
"""The modules of the family ``runtime``."""
OURS = "verify/upstream/ours.py::"
"""Where the ids of our own programs begin."""
STARTED, RUNNING, RECORD = "started", "running.json", "test.json"
_FEW = 20
"""So many tests are run also beside another sweep, and twice if need be."""
_BATCH = 120
"""Tests a process: what torch compiled for them is never given back."""
_SILENT = 900.0
"""Seconds without the end of a test, after which a process is taken for hung."""
_PYTESTS = (2, 3, 4, 5)
"""Exit statuses by which pytest says that it, not a test, failed."""


@dataclass(frozen=True)
class Case:
    """A program of a test with inputs, and what upstream made of it."""

    test: str
    """``xnnpack/test/ops/test_add.py::TestAdd::test_fp32_add``."""
    number: int
    """Of the test's runs."""
    folder: Path
    program: str
    kind: str
    steps: tuple[float | None, ...]
    shallow: bool
    inputs: int
    outputs: int
    eager: int
    """Outputs that PyTorch computed: all or none."""
    refused: str
    """What upstream's runtime said where it did not run the program."""
    left_out: str
    """Why the case cannot be given to a runner."""
    method: str = "forward"
    runs: int = 1
    """Executions in a row; the last one's outputs are kept."""
    data: tuple[Path, ...] = ()
    """Files of weights."""
    first: tuple[tuple[str, tuple[Path, ...]], ...] = ()
    """Methods that run once before, each with its inputs."""

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.test} #{self.number}"

    @property
    def file(self) -> Path:
        """The program."""
        return self.folder / self.program

    def files(self, kind: str) -> tuple[Path, ...]:
        """Its ``input``, ``output`` or ``eager`` arrays."""
        count = {"input": self.inputs, "output": self.outputs, "eager": self.eager}[kind]
        return tuple(self.folder / f"{self.number}-{kind}{index}.npy" for index in range(count))


@dataclass(frozen=True)
class Test:
    """One of upstream's tests, as it ran here."""

    __test__ = False  # for pytest

    name: str
    outcome: str
    """``passed``, ``failed``, ``skipped``, ``crashed`` or ``hung``."""
    why: str
    cases: tuple[Case, ...]


def base_folder(*, ours: bool = False) -> Path:
    """The folder of the programs of upstream's tests, or of ours."""
    from models.request import versions

    files = [ROOT / name for name in _OWN]
    files += [ROOT / name for name in _SOUND if ours]
    parts = [versions(), [code_digest(file.read_text(encoding="utf-8")) for file in files]]
    return cache_dir("tests", "sound" if ours else "upstream", sha256_bytes(json.dumps(parts).encode())[:20])


def code_digest(source: str) -> str:
    """Digest of what Python code does: an edited comment or docstring must not cost hours of collecting again."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [line for line in node.body if not _is_text(line)]
    return sha256_bytes(ast.dump(tree).encode())


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def family_of(test: str) -> str:
    """Of a program of ours: ``sizes``; empty for a test of upstream's."""
    return test.partition("[")[2].partition("-")[0] if test.startswith(OURS) else ""


@functools.cache
def _made_by(family: str) -> str:
    """Digest of the code that makes the programs of a family of ours."""
    files = _RUNTIME if family == "runtime" else (f"verify/sound/{family}.py",)
    return "".join(code_digest((ROOT / name).read_text(encoding="utf-8")) for name in files) if family else ""


def folder_of(base: Path, name: str) -> Path:
    """Where what a test gave is kept."""
    return base / sha256_bytes((name + _made_by(family_of(name))).encode())[:20]


def _ran(base: Path, name: str) -> bool:
    return (folder_of(base, name) / RECORD).is_file()


def _start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A worker; all that it prints goes into a log."""
    # Sets of strings in the same order each time: the same programs.
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    with log.open("ab") as sink:
        argv = [sys.executable, "-m", "verify.upstream.worker", *words]
        return subprocess.Popen(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)


def our_names() -> list[str]:
    """The ids of our own programs."""
    from verify.sound import table

    return [f"{OURS}test_program[{name}]" for name in table.programs()]


def names() -> list[str]:
    """The ids of upstream's tests.

    Raises:
        ExportError: upstream's tests cannot be listed.
    """
    base = base_folder()
    file = base / "tests.txt"
    with locked("upstream-tests-list"):
        if not file.is_file():
            log = cache_dir("logs") / "upstream-tests.log"
            if _start([os.fspath(file)], log).wait() or not file.is_file():
                raise ExportError("Upstream's tests cannot be listed.", f"see {log}", "./inv doctor")
    return file.read_text(encoding="utf-8").split()


def read(base: Path, name: str) -> Test | None:
    """The result of a test; ``None`` before it ran."""
    folder = folder_of(base, name)
    try:
        said = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    cases = tuple(_case(name, folder, one) for one in said["cases"])
    return Test(name, said["outcome"], said["why"], cases)


def _case(test: str, folder: Path, said: dict[str, Any]) -> Case:
    return Case(
        test, said["number"], folder, said["program"], said["kind"], tuple(said["steps"]), said["shallow"],
        said.get("input", 0), said.get("output", 0), said.get("eager", 0), said.get("refused", ""),
        said.get("left_out", ""), said.get("method", "forward"), said.get("runs", 1),
        data=tuple(folder / file for file in said.get("data", ())),
        first=tuple((name, tuple(folder / file for file in files)) for name, files in said.get("first", ())),
    )  # fmt: skip


class _Shard:
    """A worker with its tests."""

    def __init__(self, base: Path, number: int, tests: Sequence[str]) -> None:
        self._base = base
        self.left = list(tests)
        self._total = len(self.left)
        listed = base / f"shard-{os.getpid()}-{number}.txt"
        listed.write_text("\n".join(tests), encoding="utf-8")
        self._listed = listed
        self.log = cache_dir("logs") / f"upstream-tests-{number}.log"
        self.log.unlink(missing_ok=True)
        self._child = _start([os.fspath(listed), os.fspath(base)], self.log)
        self._seen = time.monotonic()

    def poll(self) -> int | None:
        """Take what has ended off the list; how many that were, ``None`` when the process is over."""
        ended = self._child.poll() is not None
        hung = not ended and time.monotonic() - self._seen > _SILENT
        if hung:
            self.stop()
        done = [one for one in self.left if _ran(self._base, one)]
        if done:
            self._seen = time.monotonic()
            gone = set(done)
            self.left = [one for one in self.left if one not in gone]
        if not ended and not hung:
            return len(done)
        self._listed.unlink(missing_ok=True)
        if self._child.returncode in _PYTESTS:
            raise ExportError("Upstream's tests do not run.", f"see {self.log}", "./inv doctor")
        if not self._blame("hung" if hung else "crashed") and len(self.left) == self._total:
            raise ExportError(
                "Upstream's tests do not run: a process ended before any.", f"see {self.log}", "./inv doctor"
            )
        return None

    def _blame(self, outcome: str) -> bool:
        """The test in which the process ended has an outcome now, and is not run again."""
        for name in self.left:
            folder = folder_of(self._base, name)
            if (folder / STARTED).is_file():
                runtime = " in upstream's runtime" if (folder / RUNNING).is_file() else ""
                why = f"the process {outcome}{runtime}, exit status {self._child.returncode}"
                write_json(folder / RECORD, {"test": name, "outcome": outcome, "why": why, "cases": []})
                self.left.remove(name)
                return True
        return False

    def stop(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait()
        self._listed.unlink(missing_ok=True)


def _run(base: Path, todo: Sequence[str], jobs: int) -> None:
    """Run tests in processes, each with some of them.

    Raises:
        ExportError: processes end without any test.
    """
    waiting = deque(todo[at : at + _BATCH] for at in range(0, len(todo), _BATCH))
    shards: list[_Shard] = []
    number = 0
    try:
        with console.step("running upstream's tests", announce=False) as step:
            step.count(0, len(todo))
            while waiting or shards:
                while waiting and len(shards) < jobs:
                    number += 1
                    shards.append(_Shard(base, number % jobs, waiting.popleft()))
                time.sleep(0.5)
                for shard in list(shards):
                    before = len(shard.left)
                    over = shard.poll() is None
                    step.one(before - len(shard.left))
                    if not over:
                        continue
                    shards.remove(shard)
                    if shard.left:
                        waiting.append(shard.left)
    finally:
        for shard in shards:
            shard.stop()


def chosen(pattern: str) -> list[str]:
    """Ids of upstream's tests and of our programs that hold one of the parts of ``pattern``, which has commas.

    Raises:
        ConfigError: one of them names nothing.
    """
    parts = words(pattern)
    known = our_names()
    if not parts or not all(any(part in name for name in known) for part in parts):
        known += names()  # takes half a minute once
    for part in parts:
        if not any(part in name for name in known):
            raise ConfigError(
                f"No id of the {len(known)} tests and programs contains {part!r}.",
                f"ids are like {known[0]} and {known[-1]}",
                "./inv self.agree --sound --program test_add.py",
            )
    return [name for name in known if not parts or any(part in name for part in parts)]


def ran(names: Sequence[str]) -> list[Test]:
    """Those tests that ran here before."""
    bases = {ours: base_folder(ours=ours) for ours in {name.startswith(OURS) for name in names}}
    return [found for name in names if (found := read(bases[name.startswith(OURS)], name)) is not None]


def collect(names: Sequence[str], jobs: int = 0) -> list[Test]:
    """Run those tests that did not run yet, and give all.

    Args:
        jobs: processes; 0: one a core, at most 4, for each takes 1.5 GiB.

    Raises:
        ExportError: upstream's tests cannot be run here.
    """
    for ours in (True, False):
        some = [name for name in names if name.startswith(OURS) is ours]
        if some:
            _collect(base_folder(ours=ours), some, jobs or min(4, os.cpu_count() or 1))
    return ran(names)


def _collect(base: Path, names: Sequence[str], jobs: int) -> None:
    todo = [name for name in names if not _ran(base, name)]
    if not todo:
        return
    with contextlib.ExitStack() as stack:
        if len(todo) > _FEW:
            stack.enter_context(locked("upstream-tests", "waiting for another ./inv self.agree --sound"))
        todo = [name for name in names if not _ran(base, name)]
        console.note(f"sound programs: {len(todo)} of {len(names)} tests to run")
        _run(base, todo, jobs)
