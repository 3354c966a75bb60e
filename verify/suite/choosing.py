"""Which files of integration and fault tests an ordinary run has: `WAYS`, and those near what changed.

What changed is what git finds different since the last run in this checkout in which everything passed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from core.files import write_atomic
from core.paths import ROOT, dist_part

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
    "runtime/engines/lean/kernels": "lean_operators",
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
    "verify/operators": "lean_operators",
}
"""The files of tests, besides `WAYS`, that look closest at the code of a folder."""


def _git(*words: str, **env: str) -> str:
    argv = ["git", "-C", os.fspath(ROOT), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, **env}).stdout


def tree() -> str:
    """The name under which git keeps all files as they are now, new ones too; empty where there is no git."""
    with tempfile.TemporaryDirectory(prefix="slipway-tree-") as folder:
        index = f"{folder}/index"  # the user's own stays as it is
        try:
            _git("add", "--all", GIT_INDEX_FILE=index)
            return _git("write-tree", GIT_INDEX_FILE=index).strip()
        except (OSError, subprocess.CalledProcessError):
            return ""


def _last() -> Path:
    return dist_part("tests") / "passed"


def keep(passed: str) -> None:
    """Note the tree of a run in which everything passed."""
    write_atomic(_last(), passed)


def chosen(now: str) -> list[str]:
    """The files of tests of an ordinary run of the tree ``now``."""
    try:
        changed = _git("diff", "--name-only", "-z", _last().read_text(encoding="ascii"), now).split("\0")
    except (OSError, subprocess.CalledProcessError):  # nothing passed here, or git has thrown its tree away
        changed = []
    return sorted({*WAYS, *near(changed)})


def near(changed: Iterable[str]) -> set[str]:
    """The files of tests among ``changed``, and those that prove the folder of one of them."""
    names = list(changed)
    found = {name for name in names if name.startswith(("tests/integration/test_", "tests/faults/test_"))}
    for folder, suites in PROVES.items():
        if any(name.startswith(f"{folder}/") for name in names):
            found |= {pattern.format(suite) for suite in suites.split() for pattern in (_INTEGRATION, _FAULTS)}
    return {name for name in found if (ROOT / name).is_file()}
