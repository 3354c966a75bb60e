"""Which files of integration and fault tests an ordinary run chooses, so that it stays within `BUDGET`; and parts.

`WAYS` always run. Then come files that failed, and those that prove a folder in which something changed since the last
run here in which all passed (`PROVES`), then others whose inputs changed, the shortest first. Those that do not fit run
the next time, because then the first ones have passed. A file that never ran on this machine, and proves nothing that
changed, runs with ``--all`` only. ``--shard 2/6`` runs the files of the second of six machines.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from core.errors import UsageError
from core.files import write_json
from core.paths import cache_dir
from verify.suite import times

_INTEGRATION, _FAULTS = "tests/integration/test_{}.py", "tests/faults/test_{}.py"

WAYS = tuple(
    _INTEGRATION.format(name)
    for name in (
        "damaged_programs", "deploy_local", "deploy_pi", "inv", "labgrid", "lean_programs", "libslipway", "matrix",
        "onnxruntime", "pytest_plugin", "readme", "sound_programs", "virtual_phone",
    )
)  # fmt: skip
"""One whole way of each kind, and the samples of sound and of damaged programs: what shows that this machine can do
what the README promises."""

PROVES: Mapping[str, str] = {
    "core/environment": "installing",
    "core/processes": "refusals",
    "deploy/comparing": "samples",
    "deploy/run": "deploying steps",
    "deploy/scripts": "userlands",
    "deploy/store": "vouched roots transfer",
    "deploy/transport/adb": "hostile_adb",
    "deploy/transport/ssh": "ssh_ways ssh_trust",
    "deploy/virtual": "virtual_pi",
    "models/inspection": "inspect",
    "models/lowering": "export refusals",
    "models/onnx": "onnx",
    "models/reference": "export",
    "models/request": "own_models",
    "models/samples": "samples",
    "models/text": "answer",
    "models/warm": "warm",
    "recipes": "recipes",
    "runtime/base": "runtime",
    "runtime/bindings": "java",
    "runtime/engines": "runtime",
    "runtime/engines/onnxruntime": "onnx",
    "runtime/library": "sdk",
    "runtime/program": "runtime",
    "runtime/runner": "runner",
    "runtime/tests": "runtime",
    "runtime/text": "answer",
    "toolchains": "build",
    "toolchains/bundle": "sdk",
    "toolchains/compilers": "build_faults hardening",
    "toolchains/debian": "debian",
    "toolchains/inspect": "toolchain",
}
"""The files of tests, besides `WAYS`, that look closest at the code of a folder."""

BUDGET = 480.0
"""Seconds for `WAYS` and for what is added to them; `WAYS` run even if they alone take longer."""

NEAR = 180.0
"""So many seconds are left in any case for files that failed or prove a folder that changed."""

GUESS = 60.0
"""Seconds of a file of tests that never ran here, added up over its tests."""


@dataclass(frozen=True)
class History:
    """What earlier runs on this machine left.

    Attributes:
        seconds: of each file of tests that was there, added up over its tests; nothing if it never ran.
        failed: files of which a test failed when they last ran.
        tree: digest of each file of the checkout at the end of the last run in which everything passed.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    tree: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """Files of tests that do not run, though they did not pass with these inputs.

    Attributes:
        never: they never ran on this machine.
        later: they do not fit into the run's time.
    """

    never: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


def _file() -> Path:
    return cache_dir("tests") / "runs.json"


def history() -> History:
    """What was kept; nothing if it is damaged."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
        seconds = {str(file): float(took) for file, took in found["seconds"].items()}
        tree = {str(name): str(digest) for name, digest in found["tree"].items()}
        return History(seconds, tuple(map(str, found["failed"])), tree)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return History()


def keep(took: Mapping[str, float], failed: set[str], there: Iterable[str], tree: Mapping[str, str]) -> None:
    """Note a run that ended: seconds of the files that ``took`` some, those that ``failed``, and all that are there."""
    last = history()
    seconds = {file: took.get(file, last.seconds.get(file, 0.0)) for file in there}
    failed = failed | (set(last.failed) - took.keys())
    now = replace(last, seconds=seconds, failed=tuple(sorted(failed & seconds.keys())))
    write_json(_file(), asdict(now if now.failed else replace(now, tree=dict(tree))))


def waiting(files: Sequence[str], tree: Mapping[str, str], passed: set[str]) -> Waiting:
    """Those of the ``files`` of tests that an ordinary run leaves out, besides those that ``passed`` before."""
    last = history()
    near = (_near(last.tree, tree) | set(last.failed) | {file for file in files if _new(last, file)}) - set(WAYS)
    spent = sum(_took(last, file) for file in WAYS if file not in passed)
    later, never = [], []
    room = {True: max(BUDGET, spent + NEAR), False: BUDGET}
    for file in sorted(set(files) - set(WAYS) - passed, key=lambda name: (name not in near, _took(last, name), name)):
        if file not in near and not last.seconds.get(file):
            never.append(file)
        elif spent + _took(last, file) > room[file in near]:
            later.append(file)
        else:
            spent += _took(last, file)
    return Waiting(tuple(sorted(never)), tuple(sorted(later)))


def _new(last: History, file: str) -> bool:
    return bool(last.seconds) and file not in last.seconds


def _took(last: History, file: str) -> float:
    """Seconds that a file adds to a run: its tests wait half of their time, and workers share the processors."""
    return (last.seconds.get(file) or GUESS) / ((os.cpu_count() or 1) + 2)


def _near(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """The files of tests that changed, and those that prove the folder of another file that did."""
    if not before:
        return set()
    changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
    found = {name for name in changed if name.startswith(("tests/integration/test_", "tests/faults/test_"))}
    for folder, suites in PROVES.items():
        if any(name.startswith(f"{folder}/") for name in changed):
            for suite in suites.split():
                found |= {pattern.format(suite) for pattern in (_INTEGRATION, _FAULTS)}
    return found & now.keys()


def shard(text: str) -> tuple[int, int]:
    """``2/6`` as (2, 6).

    Raises:
        UsageError: it is not a part of a whole.
    """
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"--shard {text!r} is not of the form PART/PARTS.", "", "./inv test --all --shard 2/6")
    return int(found[1]), int(found[2])


def _guess(file: str) -> float:
    """Seconds of a file whose times nobody kept."""
    return 1.0 if file.startswith("tests/unit/") else 30.0


def part(files: Sequence[str], number: int, count: int) -> list[str]:
    """Those of the ``files`` that are in part ``number`` of ``count``, counted from 1.

    Each file is in one part. The longest comes first, and goes where least is to be done; a checkout gives the same
    parts on every machine.
    """
    known = times.seconds()
    took = {file: known.get(file, _guess(file)) for file in files}
    loads = [0.0] * count
    mine = []
    for file in sorted(took, key=lambda name: (-took[name], name)):
        least = loads.index(min(loads))
        loads[least] += took[file]
        if least == number - 1:
            mine.append(file)
    return sorted(mine)
