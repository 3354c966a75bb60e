"""``./inv matrix``: targets × engines × programs × devices: selected, built, run, reported, compared.

Several jobs of a CI system may each run some of the cells, as ``--shard 2/5`` the second of five parts: ``--merge``
makes one report of all of them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core import console
from core.console.units import counted
from core.errors import ConfigError, MatrixError, RegressionError, SlipwayError, UncertainError, UsageError
from core.files import locked, sha256_bytes, write_atomic
from core.paths import matrix_dir
from core.processes import commands
from core.processes.sweep import Journal
from deploy.devices.inventory import load_devices
from deploy.matrix import baseline as matrix_baseline
from deploy.matrix import report as matrix_report
from deploy.matrix.model import PATIENCE, CellResult, Change, Impossible, Matrix, load_matrix
from deploy.matrix.plan import Cell, Exportable, Plan, Selection, parse_shard, plan
from deploy.matrix.run import JOURNAL, Build, Export, Filling, Language, Made
from deploy.run.result import now
from deploy.run.settings import Settings

MATRIX = "matrix.json"
JUNIT = "junit.xml"
REPORT = "report.html"
SUMMARY = "summary.md"
_GIT_SECONDS = 10.0
_EXECUTIONS = 50, 5
"""Timed executions, and warm-up, on a real device."""
COMPARED = 5
"""Rounds of each cell on a real device if figures are compared: two times five can tell a difference from chance."""


@dataclass(frozen=True)
class MatrixRequest(Selection):
    """The command line."""

    name: str = "default"
    resume: bool = False
    jobs: int = 0
    rounds: int = 0
    """Processes of each cell on a real device; 0: `COMPARED` if figures are compared or kept to be, else 1."""
    baseline: str = ""
    save_baseline: str = ""
    fail_on_regression: str = ""
    command: str = ""
    """As it was typed, for the report."""
    shard: str = ""

    @property
    def turns(self) -> int:
        """Rounds of each cell on a real device."""
        return self.rounds or (COMPARED if self.baseline or self.save_baseline else 1)

    def settings(self, cell: Cell) -> Settings:
        """Those of the cell's deploy."""
        return self.run.on(cell.device, _EXECUTIONS)


def planned(request: MatrixRequest, catalogue: Sequence[Exportable]) -> Plan:
    """The selected cells; builds nothing and connects to nothing.

    Raises:
        UsageError, ConfigError, NotSupportedError: see `deploy.matrix.plan.plan`.
    """
    return plan(load_devices(), catalogue, request).part(request.shard)


def run(
    request: MatrixRequest,
    catalogue: Sequence[Exportable],
    build: Build,
    export: Export,
    language: Language | None = None,
) -> tuple[Matrix, Path, Mapping[str, Made]]:
    """Fill the matrix and write its reports; Ctrl-C is raised again when they are written.

    Args:
        catalogue: every program that can be exported.
        language: what the cells of language models need besides; ``None``: there are none.

    Returns:
        The matrix; its folder; and by its key what each cell ran. `check` judges it.
    """
    folder = matrix_dir(named(request.name))
    threshold = matrix_baseline.fraction(request.fail_on_regression) if request.fail_on_regression else None
    if threshold is not None and not request.baseline:
        raise UsageError("--fail-on-regression goes with --baseline.", "", "--baseline FILE")
    earlier = load_matrix(Path(request.baseline)) if request.baseline else None
    whole = planned(replace(request, shard=""), catalogue)
    chosen = whole.part(request.shard)
    settings = {**_settings_of(request), "rounds": request.turns}
    keys = [[cell.key for cell in cells] for cells in (whole.cells, whole.impossible)]
    digest = sha256_bytes(json.dumps([keys, settings], sort_keys=True).encode())
    with _alone(folder):
        begun, created = time.monotonic(), now()
        interrupted = True
        with matrix_report.Live(len(chosen.cells)) as live:
            filling = Filling(
                chosen, build, export, live, request.settings, language=language,
                journal=Journal(folder / JOURNAL, CellResult), resume=request.resume, rounds=request.turns,
                jobs=request.jobs or max(2, os.cpu_count() or 2),
            )  # fmt: skip
            try:
                filling.go()
                interrupted = False
            except KeyboardInterrupt:
                done = sum(cell.outcome != "not run" for cell in filling.all())
                console.note(f"{done} of {len(chosen.cells)} cells are done; the same with --resume goes on from here.")
                raise
            finally:
                cells = filling.all()
                changes: tuple[Change, ...] = ()
                if earlier is not None:
                    limit = matrix_baseline.DEFAULT if threshold is None else threshold
                    changes = matrix_baseline.compare(earlier.cells, cells, limit)
                found = Matrix(
                    name=request.name, only=request.only, created=created, finished=now(), interrupted=interrupted,
                    command=request.command, commit=commit(), host=host(),
                    seconds=round(time.monotonic() - begun, 2), settings=_settings_of(request), cells=cells,
                    impossible=tuple(Impossible.of(cell) for cell in chosen.impossible), changes=changes,
                    baseline=Path(request.baseline).name if request.baseline else "", threshold=threshold,
                    shard=request.shard, plan=digest if request.shard else "",
                )  # fmt: skip
                write(found, folder)
    return found, folder, filling.made


def merge(parts: Sequence[str], request: MatrixRequest) -> tuple[Matrix, Path]:
    """Write the reports of what several jobs ran, and return the matrix and its folder; `check` judges it.

    The parts are ``matrix.json`` files, or folders that hold them at any depth.

    Raises:
        UsageError: a part has no matrix. ConfigError: a file is not one, or they do not fit together.
    """
    folder = matrix_dir(named(request.name))
    files: dict[Path, None] = {}
    for word in parts:
        path = Path(word)
        inside = [path] if path.is_file() else sorted(path.rglob(MATRIX))
        # The result's own folder may lie in one of them.
        inside = [file.resolve() for file in inside if file.parent.resolve() != folder.resolve()]
        if not inside:
            raise UsageError(
                f"--merge {word}: there is no {MATRIX}.", "each job leaves one in dist/matrix/NAME",
                "./inv matrix --merge FOLDER, with the reports' folders of all jobs in it",
            )  # fmt: skip
        files |= dict.fromkeys(inside)
    loaded = [load_matrix(file) for file in files]
    _check_parts(loaded)
    found = merged(loaded, request.name, request.command)
    with _alone(folder):
        write(found, folder)
    return found, folder


def named(name: str) -> str:
    """``--name``, which is to be a folder's.

    Raises:
        UsageError: it cannot be.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise UsageError(
            f"--name {name!r} is not a valid name for a folder.", "letters, digits, '.', '_', '-'", "--name a"
        )
    return name


def _alone(folder: Path) -> AbstractContextManager[None]:
    name = sha256_bytes(str(folder).encode())[:16]
    return locked(f"matrix-{name}", "waiting: another matrix of this name is running")


def write(found: Matrix, folder: Path) -> None:
    """Write ``matrix.json``, ``junit.xml``, ``summary.md`` and ``report.html``."""
    write_atomic(folder / MATRIX, found.model_dump_json(indent=1) + "\n")
    write_atomic(folder / JUNIT, matrix_report.junit(found))
    write_atomic(folder / SUMMARY, matrix_report.summary(found))
    write_atomic(folder / REPORT, matrix_report.html(found))


def check(found: Matrix, folder: Path, save_baseline: str = "") -> None:
    """Raise an error for failed cells or regressions; otherwise keep the matrix as a baseline, if requested.

    Raises:
        MatrixError: cells failed. RegressionError: none failed, and figures are worse than allowed.
        UncertainError: no figure is certainly worse, and some may be.
    """
    report = console.shown(folder / REPORT)
    judged = [] if found.threshold is None else found.regressions or found.uncertain
    if save_baseline and (found.failures or judged):
        console.note(
            f"{save_baseline} was not written: only a matrix without failures and regressions can become a baseline."
        )
    if found.failures:
        first = found.failures[0]
        raise MatrixError(
            f"{len(found.failures)} of {len(found.cells)} cells failed.",
            f"{first.key}: {first.problem.what if first.problem else first.outcome}",
            f"{report}; then ./inv matrix --resume with the same words runs only what did not pass",
            [cell.key for cell in found.failures],
        )
    if judged:
        many, keys = counted(len(judged), "figure"), list(dict.fromkeys(change.key for change in judged))
        worst = max(judged, key=lambda change: change.ratio or 0.0)
        was = f"{worst.key}: {worst.what} was {worst.before}, is {worst.now}"
        if found.regressions:
            raise RegressionError(
                f"{many} {'is' if len(judged) == 1 else 'are'} worse than {found.baseline} by more than "
                f"{found.threshold:.0%}.",
                was,
                f"{report} shows all; --save-baseline accepts what there is now",
                keys,
            )
        raise UncertainError(
            f"{many} may be worse than {found.baseline} allows; the measurement is too noisy to tell.",
            f"{was}; {worst.why}",
            "the same command again when the device is idle and cool, with --rounds 10",
            keys,
        )
    if save_baseline:
        write_atomic(Path(save_baseline), found.model_dump_json(indent=1) + "\n")
        console.note(f"Baseline: {console.shown(save_baseline)}")


def commit() -> str:
    """The commit of the current folder, with ``-dirty`` if files differ from it; empty outside a repository."""
    if shutil.which("git") is None:
        return ""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = commands.run(words, timeout=_GIT_SECONDS, error=None)
    except SlipwayError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def host() -> str:
    """This machine: its name, its cores, its system."""
    name = platform.node().partition(".")[0]
    return f"{name}, {counted(os.cpu_count() or 1, 'core')}, {platform.system()} {platform.machine()}"


def _settings_of(request: MatrixRequest) -> dict[str, Any]:
    given = {
        "devices": list(request.devices), "engines": list(request.engines), "models": list(request.models),
        "schemes": list(request.schemes), **request.run.model_dump(mode="json"),
    }  # fmt: skip
    return {name: value for name, value in given.items() if value and name not in PATIENCE}


def _check_parts(parts: Sequence[Matrix]) -> None:
    """Refuse parts that are not the whole of one plan at one commit. Matrices that are not parts are left alone.

    Raises:
        ConfigError: it names the parts that are missing, double, or of another plan or commit.
    """
    shards = [each.shard for each in parts if each.shard]
    if not shards:
        return
    count = parse_shard(shards[0])[1]
    commits = sorted({each.commit or "none" for each in parts})
    wrong = [f"{each.name} of {each.created} is not a part, and others are" for each in parts if not each.shard]
    if len({each.plan for each in parts if each.shard}) > 1:
        wrong.append("they are of different plans: other cells or settings")
    wrong += [
        f"part {number} of {count} is {'there twice' if there else 'missing'}"
        for number in range(1, count + 1)
        if (there := shards.count(f"{number}/{count}")) != 1
    ]
    if len(commits) > 1:
        wrong.append(f"they are of different commits: {', '.join(commits)}")
    if wrong:
        raise ConfigError(
            "The parts are not the whole of one matrix.", "; ".join(wrong),
            f"./inv matrix --shard PART/{count} with the same words at one commit, then merge each part once", wrong,
        )  # fmt: skip


def merged(parts: Sequence[Matrix], name: str, command: str) -> Matrix:
    """One matrix of all ``parts``; of a cell that several have, the latest result.

    Raises:
        ConfigError: the parts were compared with different baselines or limits.
    """
    parts = sorted(parts, key=lambda part: part.finished)
    limits = {(part.baseline, part.threshold) for part in parts if part.baseline}
    if len(limits) > 1:
        known = ", ".join(f"{base} ({limit or 0:.0%})" for base, limit in sorted(limits, key=str))
        raise ConfigError("The matrices were compared with different baselines.", known, "merge those of one run")
    baseline, threshold = limits.pop() if limits else ("", None)
    # A cell that one job did not reach may have run in another.
    ran = {cell.key: cell for part in parts for cell in part.cells if cell.outcome != "not run"}
    cells = {cell.key: ran.get(cell.key, cell) for part in parts for cell in part.cells}
    hosts = list(dict.fromkeys(part.host for part in parts if part.host))
    latest = {cell.key: part for part in parts for cell in part.cells if cells[cell.key] is cell}
    return Matrix(
        name=name,
        only=" | ".join(dict.fromkeys(f"({part.only})" for part in parts if part.only)),
        created=min(part.created for part in parts), finished=max(part.finished for part in parts),
        seconds=round(sum(part.seconds for part in parts), 2), jobs=sum(part.jobs for part in parts),
        interrupted=any(part.interrupted for part in parts),
        command=command, commit=", ".join(dict.fromkeys(part.commit for part in parts if part.commit)),
        host=", ".join(hosts) if len(hosts) <= 2 else counted(len(hosts), "host"),
        settings=next((part.settings for part in parts), {}),
        cells=tuple(cells.values()),
        impossible=tuple({one.key: one for part in parts for one in part.impossible if one.key not in cells}.values()),
        baseline=baseline, threshold=threshold,
        changes=tuple(change for part in parts for change in part.changes if latest.get(change.key, part) is part),
    )  # fmt: skip
