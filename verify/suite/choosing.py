"""Which files of integration and fault tests an ordinary run chooses, so that it stays within `BUDGET`.

`WAYS` always run. Then come files that failed, and those that prove a folder in which something changed since the last
run here in which all passed (`PROVES`), then others whose inputs changed, the shortest first. Those that do not fit run
the next time, because then the first ones have passed. A file that never ran on this machine, and proves nothing that
changed, runs with ``--all`` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from core.files import write_json
from core.paths import cache_dir

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
    "models": "warm",
    "models/inspection": "inspect",
    "models/lowering": "export refusals",
    "models/onnx": "onnx",
    "models/reference": "export",
    "models/request": "own_models",
    "models/samples": "samples",
    "models/text": "answer",
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
    "toolchains/compilers": "hardening",
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


class History(BaseModel):
    """What earlier runs on this machine left."""

    model_config = ConfigDict(frozen=True)

    seconds: dict[str, float] = {}
    """Of each file of tests that was there, added up over its tests; 0 if it never ran."""
    failed: tuple[str, ...] = ()
    """Files of which a test failed when they last ran."""
    tree: dict[str, str] = {}
    """Digest of each file of the checkout at the end of the last run in which everything passed."""


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
        return History.model_validate_json(_file().read_bytes())
    except (OSError, ValueError):
        return History()


def keep(took: Mapping[str, float], failed: set[str], there: Iterable[str], tree: Mapping[str, str]) -> None:
    """Note a run that ended: seconds of the files that ``took`` some, those that ``failed``, and all that are there."""
    last = history()
    seconds = {file: took.get(file, last.seconds.get(file, 0.0)) for file in there}
    still = (failed | (set(last.failed) - took.keys())) & seconds.keys()
    now = History(seconds=seconds, failed=tuple(sorted(still)), tree=last.tree if still else dict(tree))
    write_json(_file(), now.model_dump(mode="json"))


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
