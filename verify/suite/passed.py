"""Files of tests that passed before with the same inputs: a whole run does not run them again.

The inputs of a file of tests are the modules that it imports, and those that its commands loaded in an earlier run
here, with all that these import; every file beside one of these modules; and the files that are no module of ours, as
`Inputs.needs` tells them apart. What the machine gives counts, too: its system and installed packages, its processors,
the variables of Slipway's environment. After a week, or with ``./inv test --again``, a file runs again. Which of the
others run is in `verify.suite.choosing`.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath

from core.files import sha256_bytes, sha256_file, write_json
from core.paths import cache_dir
from verify import rooms
from verify.suite import choosing, times

KEPT_FOR = timedelta(days=7)

ALL = ("tests/integration/test_readme.py", "tests/integration/test_tutorials.py")
"""Tests of commands that pages name: everything counts."""

_BUILDER = "toolchains.bundle"
_BUILT = ("runtime", "conanfile.py")
"""What counts for tests whose modules are among the builder's."""
_PAGES = re.compile(r"docs|\.md\b|readme", re.IGNORECASE)
"""The words of a file of tests for which the pages count."""

_PLACES = ("SLIPWAY_CACHE", "SLIPWAY_DIST", "SLIPWAY_LOADED_IN", "SLIPWAY_VENV")
"""Variables that say where things are, not what they are."""


@dataclass(frozen=True)
class Passed:
    """A run in which all tests of a file passed: when it ended, in UTC, and how many they were."""

    ended: str
    tests: int


def tracked(root: Path) -> dict[str, str]:
    """Digest of each file below ``root`` that git tracks or would, by its name.

    Raises:
        OSError, subprocess.CalledProcessError: it is not a checkout, or git is not there.
    """
    argv = ["git", "-C", os.fspath(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(argv, check=True, capture_output=True).stdout.decode(errors="surrogateescape")
    found: dict[str, str] = {}
    for name in sorted(set(listed.split("\0")) - {""}):
        path = root / name
        if path.is_symlink():
            found[name] = os.fspath(path.readlink())
        elif path.is_file():  # one that was deleted and not committed is listed, too
            found[name] = sha256_file(path) + ("x" if os.access(path, os.X_OK) else "")
    return found


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


def _closure(modules: Iterable[str]) -> set[str]:
    """``modules``, their packages, and all that they import."""
    found: set[str] = set()
    ahead = set(modules)
    while ahead:
        module = ahead.pop()
        found.add(module)
        parent = {module.rpartition(".")[0]} & rooms.modules().keys()
        ahead |= (rooms.ours(module) | parent) - found
    return found


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
        self._needs: dict[tuple[str, int], set[str]] = {}

    def needs(self, file: str) -> set[str]:
        """The files of the checkout that can change the result of the tests of ``file``."""
        loaded = _loaded(file)
        key = file, len(loaded)  # they only become more
        if key not in self._needs:
            self._needs[key] = self._look(file, loaded)
        return self._needs[key]

    def _look(self, file: str, loaded: Sequence[str]) -> set[str]:
        if file in ALL:
            return set(self.files)
        known = rooms.modules()
        own = _closure({file[:-3].replace("/", ".")})
        texts = {name: known[name].read_text(encoding="utf-8") for name in own if name.startswith("tests.")}
        # A module that is started as a program is named.
        named = {text for said in texts.values() for text in _strings(said)} & known.keys()
        modules = _closure(own | named | (set(loaded) & known.keys()))
        folders = {parent for name in modules for parent in known[name].relative_to(self.root).parents}
        kinds = {known[name].relative_to(self.root).as_posix() for name in own if name.startswith("tests.")}
        text = "\n".join(texts.values())
        built = any(name.startswith(_BUILDER) for name in modules)
        pages = bool(_PAGES.search(text))

        def counts(name: str) -> bool:
            path = PurePosixPath(name)
            top = path.parts[0]
            if top == "tests":
                data = path.suffix != ".py" or len(path.parts) > 3
                return name in kinds or (data and any(part.partition(".")[0] in text for part in path.parts[2:]))
            if top == "docs" or (len(path.parts) == 1 and path.suffix == ".md"):
                return pages
            if top in _BUILT:
                return built
            return top not in rooms.ROOMS or Path(path.parent) in folders

        return {name for name in self.files if counts(name)}

    def digest(self, file: str, *, long: bool) -> str:
        """Of everything that the tests of ``file`` depend on; ``long``: those marked so are among them."""
        needs = [[name, self.files[name]] for name in sorted(self.needs(file))]
        return sha256_bytes(json.dumps([file, long, self.machine, needs]).encode(errors="surrogateescape"))


def _strings(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text))
    return {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}


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
    for file in files:
        said = folder / file.replace("/", "-")
        if said.is_file():
            found = {name for name in said.read_text(encoding="utf-8").split() if name.partition(".")[0] in rooms.ROOMS}
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
    if inputs is None or not report.is_file():
        return
    cases = times.read([report])
    bad = {case.file for case in cases if not case.passed}
    took = {suite.file: suite.seconds + 0.1 for suite in times.summed(cases)}
    counts = {suite.file: suite.tests for suite in times.summed(cases)}
    now = read(inputs.root)
    ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
    choosing.keep(took, bad, there, inputs.files)
    for file in (file for file in files if file in counts and file not in bad):
        for known in {long, False}:
            digest = inputs.digest(file, long=known)
            if now and now.digest(file, long=known) == digest:
                write_json(_record(digest), asdict(Passed(ended, counts[file])))
    oldest = (datetime.now(timezone.utc) - KEPT_FOR).timestamp()
    for path in cache_dir("tests", "passed").glob("*.json"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
