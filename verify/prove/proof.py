"""The output of the proof program, and the result of a run of it on one CPU model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import BuildError

Outcome = Literal["passed", "failed", "unsupported"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Case(_Model):
    """One small graph, computed by XNNPACK and compared with the program's own reference."""

    name: str
    op: str
    dtype: str
    shape: str
    outcome: Outcome
    status: str
    """XNNPACK's answer: ``success``, or why it refused."""
    why: str
    """Why it failed, or why this CPU cannot run it."""
    max_error: float | None
    tolerance: float
    operators: tuple[str, ...]
    """XNNPACK's names of the operators it chose."""
    samples: Mapping[str, int] = {}
    """Addresses the program was seen at (hexadecimal) and how often; only if it is told to look."""


class _Library(_Model):
    version: str
    build_identifier: str


class _Cpu(_Model):
    name: str
    features: tuple[str, ...]


class Report(_Model):
    """The JSON document of ``xnnpack_proof --json``."""

    schema_version: Literal[1]
    xnnpack: _Library
    kleidiai: str
    """Version; empty: XNNPACK was built without."""
    cpu: _Cpu
    passed: bool
    cases: tuple[Case, ...]


def parse_report(text: str, program: Path) -> Report:
    """Check what the program printed.

    Raises:
        BuildError: it is not what the program prints.
    """
    try:
        report = Report.model_validate(json.loads(text))
    except (ValueError, ValidationError) as error:
        raise BuildError(
            "The proof program did not print what it should.", f"{program}: {error}", "./inv build --packages --force"
        ) from error
    if report.passed != all(case.outcome != "failed" for case in report.cases) or not report.cases:
        raise BuildError("The proof program contradicts itself.", f"{program}: passed is {report.passed}", "./inv test")
    return report


class CaseResult(_Model):
    """A case as it is kept: its outcome and the kernels that ran."""

    outcome: Outcome
    why: str = ""
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


class Row(_Model):
    """All cases on one CPU model; what is kept of it holds no times and no names of machines."""

    target: str
    cpu: str
    """A CPU model of the target's, ``native`` or ``wine``; empty where nothing can run the target's programs."""
    how: str
    outcome: Literal["passed", "failed", "not run", "not built"]
    why: str = ""
    xnnpack: str = ""
    kleidiai: str = ""
    toolchain: str = ""
    features: tuple[str, ...] = ()
    """The CPU's features as cpuinfo sees them."""
    kernels_by: str = ""
    """How the kernels were identified: ``translation`` (by QEMU); empty: they were not."""
    cases: Mapping[str, CaseResult] = {}
