"""Files of tests that passed before with the same inputs: a whole run does not run them again.

The inputs of a file of tests are those that `verify.suite.inputs` names. What the machine gives counts, too: its system
and installed packages, its processors, the variables of Slipway's environment. After a week, or with
``./inv test --again``, a file runs again. Which of the others run is in `verify.suite.choosing`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from core.files import sha256_bytes, sha256_file, write_json
from core.paths import cache_dir
from verify.suite import choosing
from verify.suite.inputs import Suite, Tree, tracked

KEPT_FOR = timedelta(days=7)

_PLACES = ("SLIPWAY_CACHE", "SLIPWAY_DIST", "SLIPWAY_LOADED_IN", "SLIPWAY_VENV")
"""Variables that say where things are, not what they are."""


@dataclass(frozen=True)
class Passed:
    """A run in which all tests of a file passed: when it ended, in UTC, and how many they were."""

    ended: str
    tests: int


def _machine() -> list[str]:
    cpus = Path("/proc/cpuinfo")
    flags = re.findall(
        r"^(?:model name|flags|Features)\s*:.*$", cpus.read_text() if cpus.is_file() else "", re.MULTILINE
    )
    packages = Path("/var/lib/dpkg/status")
    variables = {
        name: value for name, value in os.environ.items() if name.startswith("SLIPWAY_") and name not in _PLACES
    }
    return [
        sys.version, platform.platform(), str(os.cpu_count()), *sorted(set(flags)),
        sha256_file(packages) if packages.is_file() else "", json.dumps(variables, sort_keys=True),
    ]  # fmt: skip


class Inputs:
    """What decides about the tests of a checkout, read once."""

    def __init__(self, root: Path) -> None:
        """Read all files below ``root`` that git tracks, or would.

        Raises:
            OSError, subprocess.CalledProcessError: it is not a checkout, or git is not there.
        """
        self.root = root
        self.files = tracked(root)
        self.machine = _machine()
        self._tree = Tree(root, self.files)
        self._needs: dict[str, list[list[str]]] = {}

    def forget(self) -> None:
        """Forget what counts for each file, after more was learned of it; the files' digests stay."""
        self._needs.clear()

    def digest(self, file: str, *, long: bool) -> str:
        """Of everything that the tests of ``file`` depend on; ``long``: those marked so are among them."""
        if file not in self._needs:
            learned = {self._tree.modules[module] for module in _loaded(file) if module in self._tree.modules}
            needs = Suite(self._tree, file).needs() | learned
            self._needs[file] = [[name, self.files[name]] for name in sorted(needs)]
        parts = [file, long, self.machine, self._needs[file]]
        return sha256_bytes(json.dumps(parts).encode(errors="surrogateescape"))


def _learned(file: str) -> Path:
    return cache_dir("tests", "loaded") / f"{file.replace('/', '-')}.json"


def _loaded(file: str) -> list[str]:
    """The modules that commands of an earlier run of ``file`` loaded."""
    try:
        return [str(module) for module in json.loads(_learned(file).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def learn(folder: Path, files: Iterable[str]) -> None:
    """Keep what the commands of ``files`` of tests loaded: ``folder`` has a list of modules for each file."""
    rooms = tuple(f"{room}." for room in ("commands", "core", "deploy", "models", "toolchains", "verify"))
    for file in files:
        said = folder / file.replace("/", "-")
        if said.is_file():
            found = {name for name in said.read_text(encoding="utf-8").split() if name.startswith(rooms)}
            write_json(_learned(file), sorted(found | set(_loaded(file))))


def _record(digest: str) -> Path:
    return cache_dir("tests", "passed") / f"{digest}.json"


def read(root: Path) -> Inputs | None:
    """The inputs of this checkout; nothing for a tree without git, whose tests always run."""
    try:
        return Inputs(root)
    except (OSError, subprocess.CalledProcessError):
        return None


def before(inputs: Inputs | None, files: Iterable[str], *, long: bool) -> dict[str, Passed]:
    """Those of the files whose tests all passed with these inputs in the last week."""
    if inputs is None:
        return {}
    found = {file: _recorded(inputs.digest(file, long=long)) for file in files if file in inputs.files}
    return {file: one for file, one in found.items() if one is not None}


def _recorded(digest: str) -> Passed | None:
    try:
        one = Passed(**json.loads(_record(digest).read_text(encoding="utf-8")))
        fresh = datetime.now(timezone.utc) - datetime.fromisoformat(one.ended) < KEPT_FOR
    except (OSError, ValueError, TypeError):
        return None  # unknown, or damaged: the tests run
    return one if fresh else None


def keep(inputs: Inputs | None, report: Path, files: Sequence[str], there: Sequence[str], *, long: bool) -> None:
    """Note the ``files`` of which every test passed in a run that ended, by pytest's report of it, and their seconds.

    Nothing is kept for files that changed while the tests ran. ``there``: all files of tests.
    """
    from junitparser import JUnitXml, TestCase

    if inputs is None or not report.is_file():
        return
    good: dict[str, int] = {}
    took: dict[str, float] = {}
    bad: set[str] = set()
    cases = [case for suite in JUnitXml.fromfile(os.fspath(report)) for case in suite if isinstance(case, TestCase)]
    for case in cases:
        file = f"{(case.classname or '').replace('.', '/')}.py"
        good[file] = good.get(file, 0) + 1
        took[file] = took.get(file, 0.1) + float(case.time or 0)
        if case.result:
            bad.add(file)
    inputs.forget()
    now = read(inputs.root)
    ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
    choosing.keep(took, bad, there, inputs.files)
    for file in files:
        for known in {long, False}:
            digest = inputs.digest(file, long=known)
            if file in good and file not in bad and now and now.digest(file, long=known) == digest:
                write_json(_record(digest), asdict(Passed(ended, good[file])))
    _forget()


def _forget() -> None:
    oldest = (datetime.now(timezone.utc) - KEPT_FOR).timestamp()
    for path in cache_dir("tests", "passed").glob("*.json"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
