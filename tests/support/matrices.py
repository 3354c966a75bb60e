"""Parts of matrices for unit tests: cells with everything that a run leaves, made without one."""

from __future__ import annotations

from typing import Any

from deploy.devices.inventory import Device
from deploy.matrix.model import CellResult, Impossible, Matrix, Output, Problem, Times
from deploy.matrix.plan import Cell, Exportable

MLP = Exportable("mlp-fp32", "mlp", "fp32", "pte")
SHELF = Device(name="shelf", transport="ssh", host="shelf.invalid", target="linux-arm64", tags=("shelf",))
EMULATED = Device(name="emu", transport="ssh", virtual="pi", target="linux-arm64", tags=("emulated",))
TIMES = Times(count=50, warmup=5, load=1.0, min=9.0, p50=10.0, p90=11.0, p99=12.0, mean=10.1)
OUTPUT = Output(name="output0", sha256="ab" * 32, verdict="agrees", max_abs=1e-6, tolerance="1e-05", atol=1e-5)


def cell(device: Device = SHELF, program: Exportable = MLP, engine: str = "lean") -> Cell:
    return Cell(device, device.target, engine, program)


def passed(of: Cell | None = None, **known: Any) -> CellResult:
    which = of or cell()
    emulated = which.device.emulated
    values: dict[str, Any] = {
        "key": which.key, "device": which.device.name, "target": which.target, "engine": which.engine,
        "tags": which.device.tags, "program": which.program.name, "model": which.program.model,
        "scheme": which.program.scheme, "emulated": emulated, "outcome": "passed", "inputs": "0" * 64,
        "created": "2026-11-21T04:00:00.000Z", "seconds": 1.5, "attempts": 1,
        "latency": None if emulated else TIMES, "emulated_time": TIMES if emulated else None, "cpu": "Cortex-A76",
        "threads": 4, "program_bytes": 100_000, "program_sha256": "cd" * 32, "bundle_bytes": 4_000_000,
        "bundle_digest": "ef" * 32, "peak_rss_bytes": 9_000_000, "outputs": (OUTPUT,), "engine_version": "1.0",
        **known,
    }  # fmt: skip
    return CellResult(**values)


def problem(**known: Any) -> Problem:
    return Problem.model_validate({"error": "run", "exit_code": 30, "what": "It failed.", **known})


def matrix(*cells: CellResult, **known: Any) -> Matrix:
    values: dict[str, Any] = {
        "name": "default", "created": "2026-11-21T04:00:00.000Z", "finished": "2026-11-21T04:01:00.000Z",
        "seconds": 60.0, "cells": cells or (passed(),), **known,
    }  # fmt: skip
    return Matrix(**values)


def impossible(why: str, device: str = "shelf") -> Impossible:
    return Impossible(
        key=f"{device}/linux-arm64/lean/mlp-qs8", device=device, target="linux-arm64", engine="lean",
        program="mlp-qs8", why=why,
    )  # fmt: skip
