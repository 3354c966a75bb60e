"""Fixtures for all tests, and the rule that a skipped test is a failed run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from core.paths import ROOT
from tests.support.order import rank, unit
from tests.support.processes import ran

# A CI that starts us in the background hands down SIGINT ignored, and children would never feel a Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The developer's own inventory is none of the tests' business.
os.environ["XDG_CONFIG_HOME"] = str(ROOT / "dist" / "no-configuration")
# A test's export must not leave a process behind; tests/support/builds.py has the exporter that waits, and ends it.
os.environ["SLIPWAY_WARM"] = "no"
# Figures and durations must not depend on what the cache has; tests of trained weights say so.
os.environ["SLIPWAY_WEIGHTS"] = "random"
# Threads of PyTorch that wait for work must not compute meanwhile what another worker's tests need the processor for:
# beside other work an export took twice the processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

Completed = subprocess.CompletedProcess[str]


class Inv(Protocol):
    """Runs ``./inv`` with the given words."""

    def __call__(self, *words: str, timeout: float = ..., env: dict[str, str] | None = ...) -> Completed: ...


@pytest.fixture(scope="session")
def inv() -> Inv:
    """``./inv`` of this checkout as a user would run it; output captured."""

    def call(*words: str, timeout: float = 900, env: dict[str, str] | None = None) -> Completed:
        return ran([str(ROOT / "inv"), *words], cwd=ROOT, env={**os.environ, **(env or {})}, timeout=timeout)

    return call


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``dist/`` of the test's own."""
    folder = tmp_path / "dist"
    monkeypatch.setenv("SLIPWAY_DIST", str(folder))
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, the files that take longest come first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, but for those that share nothing."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = unit
    return scheduler


_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """A skipped test hides a gap: the run does not pass."""
    if _skipped and int(exitstatus) == 0:
        session.exitstatus = 1
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        write: Callable[[str], None] = reporter.write_line if reporter else lambda line: None
        write(f"Skipped tests fail the run: {', '.join(_skipped)}")
