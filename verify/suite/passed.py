"""Files of tests that passed before with the same inputs: a whole run does not run them again.

The inputs of a file of tests are all files of the checkout, but for other files of tests that it does not import and
prose that it does not read. What the machine gives counts, too: its system and installed packages, its processors, the
variables of Slipway's environment. After a week, or with ``./inv test --again``, everything runs again.
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

KEPT_FOR = timedelta(days=7)

_IMPORT = re.compile(r"^\s*(?:from|import)\s+(tests(?:\.\w+)*)(?:\s+import\s+\(?([\w, ]+))?", re.MULTILINE)
_READS_PROSE = re.compile(r"docs|\.md\b|README")
_PLACES = ("SLIPWAY_CACHE", "SLIPWAY_DIST", "SLIPWAY_VENV")
"""Variables that say where things are, not what they are."""


@dataclass(frozen=True)
class Passed:
    """A run in which all tests of a file passed: when it ended, in UTC, and how many they were."""

    ended: str
    tests: int


def _is_test(name: str) -> bool:
    return name.startswith("tests/") and Path(name).name.startswith("test_") and name.endswith(".py")


def _is_prose(name: str) -> bool:
    # Not docs/data: commands read it.
    return name.endswith((".md", ".svg")) and (name.startswith("docs/") or "/" not in name)


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
        argv = ["git", "-C", os.fspath(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(argv, check=True, capture_output=True).stdout.decode(errors="surrogateescape")
        self.root = root
        self.files: dict[str, str] = {}
        for name in sorted(set(listed.split("\0")) - {""}):
            path = root / name
            if path.is_symlink():
                self.files[name] = os.fspath(path.readlink())
            elif path.is_file():  # one that was deleted and not committed is listed, too
                self.files[name] = sha256_file(path) + ("x" if os.access(path, os.X_OK) else "")
        self.machine = _machine()

    def imported(self, file: str) -> set[str]:
        """The Python files below ``tests/`` that a file of tests consists of, itself among them."""
        found: set[str] = set()
        ahead = {file}
        while ahead:
            name = ahead.pop()
            found.add(name)
            for module, names in _IMPORT.findall((self.root / name).read_text(encoding="utf-8")):
                for dotted in (module, *(f"{module}.{one.strip()}" for one in names.split(",") if one.strip())):
                    path = f"{dotted.replace('.', '/')}.py"
                    if path in self.files and path not in found:
                        ahead.add(path)
        return found

    def digest(self, file: str, *, long: bool) -> str:
        """Of everything that the tests of ``file`` depend on; ``long``: those that CI leaves out are among them."""
        own = self.imported(file)
        prose = any(_READS_PROSE.search((self.root / name).read_text(encoding="utf-8")) for name in own)
        parts = [
            [name, digest]
            for name, digest in self.files.items()
            if name in own or not (_is_test(name) or (_is_prose(name) and not prose))
        ]
        return sha256_bytes(json.dumps([file, long, self.machine, parts]).encode(errors="surrogateescape"))


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


def keep(inputs: Inputs | None, report: Path, files: Sequence[str], *, long: bool) -> None:
    """Note the files of which every test passed in a run that ended, by pytest's report of it.

    Nothing is kept for files that changed while the tests ran.
    """
    from junitparser import JUnitXml, TestCase

    if inputs is None or not report.is_file():
        return
    good: dict[str, int] = {}
    bad: set[str] = set()
    cases = [case for suite in JUnitXml.fromfile(os.fspath(report)) for case in suite if isinstance(case, TestCase)]
    for case in cases:
        file = f"{(case.classname or '').replace('.', '/')}.py"
        good[file] = good.get(file, 0) + 1
        if case.result:
            bad.add(file)
    now = read(inputs.root)
    ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
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
