"""A small matrix on this machine and the virtual Pi: interrupted, resumed, held against a changed baseline."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from core.paths import ROOT, matrix_dir
from deploy.devices.inventory import Device
from deploy.matrix.model import Matrix, load_matrix
from deploy.store.lock import new_owner
from tests.support.processes import gone

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]

Start = Callable[..., "subprocess.Popen[str]"]
ONLY = "executorch & (mlp-fp32 | linear-fp32)"
IDLE = 0.5
"""A load average that leaves no doubt about times."""


@pytest.fixture
def name() -> Iterator[str]:
    """A matrix of the test's own, among the bundles and programs of all tests."""
    own = f"test-{os.getpid()}"
    yield own
    shutil.rmtree(matrix_dir(own), ignore_errors=True)


@pytest.fixture
def start(tmp_path: Path, name: str) -> Start:
    """``./inv matrix`` over two devices with stores of the test's own, in a folder by which its processes are known."""
    tables = (
        Device(name="bench", transport="local", root=str(tmp_path / "a store")),
        Device(name="board", transport="ssh", target="linux-arm64", virtual="pi", root=f"/tmp/slipway {new_owner()}"),  # noqa: S108
    )
    inventory = tmp_path / "devices.toml"
    lines = []
    for device in tables:
        values = device.model_dump(mode="json", exclude_defaults=True)
        lines += [f"[{values.pop('name')}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    inventory.write_text("\n".join(lines) + "\n")

    def call(*words: str) -> subprocess.Popen[str]:
        argv = [str(ROOT / "inv"), "matrix", "--name", name, "--devices", "bench,board", "--only", ONLY, *words]
        env = {**os.environ, "SLIPWAY_DEVICES_FILE": str(inventory)}
        return subprocess.Popen(
            argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    return call


def _end(process: subprocess.Popen[str], code: int) -> tuple[Any, str]:
    """What ``--json`` printed, and stderr."""
    try:
        out, err = process.communicate(timeout=300)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == code, out + err
    return json.JSONDecoder().raw_decode(out)[0] if out.startswith("{") else out, err


def _outcomes(found: Matrix) -> dict[str, str]:
    return {f"{cell.device}/{cell.program}": cell.outcome for cell in found.cells}


def _ended_on_the_bench(journal: Path) -> list[str]:
    """The bench's cells that are in the journal: on a busy machine one of the board's may come before them."""
    lines = journal.read_text(encoding="utf-8").split("\n")[:-1] if journal.is_file() else []
    return [line for line in lines if line and json.loads(line)["cell"].startswith("bench/")]


def test_interrupted_resumed_and_worse_than_before(start: Start, name: str, tmp_path: Path) -> None:
    folder = matrix_dir(name)
    process = start()
    limit = time.monotonic() + 300
    journal = folder / "cells.jsonl"
    while len(_ended_on_the_bench(journal)) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    _out, err = _end(process, 130)
    assert "Traceback" not in err
    assert gone(str(tmp_path))
    cut = load_matrix(folder / "matrix.json")
    assert cut.interrupted
    outcomes = _outcomes(cut)
    assert outcomes["bench/linear-fp32"] == outcomes["bench/mlp-fp32"] == "passed"
    assert "not run" in outcomes.values()
    assert len(list(JUnitXml.fromfile(str(folder / "junit.xml")))) == 2
    assert "interrupted" in (folder / "report.html").read_text(encoding="utf-8")
    before = {cell.key: cell for cell in cut.cells if cell.outcome == "passed"}

    baseline = tmp_path / "baseline.json"
    printed, err = _end(start("--resume", "--json", "--save-baseline", str(baseline), "--rounds", "1"), 0)
    whole = load_matrix(folder / "matrix.json")
    assert set(_outcomes(whole).values()) == {"passed"}
    assert len(whole.cells) == len(printed["cells"]) == 4
    for cell in whole.cells:
        assert cell.reused == (cell.key in before)
        assert cell.emulated == (cell.device == "board")
        assert (cell.latency is None) == cell.emulated
        assert (cell.emulated_time is None) != cell.emulated
        if cell.reused:
            assert cell.latency == before[cell.key].latency
    assert not list(tmp_path.glob("a store/runs/*"))
    assert gone(str(tmp_path))

    _end(start("--resume", "--save-baseline", str(baseline)), 0)
    assert [len(cell.rounds) for cell in load_matrix(folder / "matrix.json").cells if not cell.emulated] == [5, 5]
    planted = json.loads(baseline.read_text())
    for row in planted["cells"]:
        times = row["latency"] or row["emulated_time"]
        for each in (times, *row["rounds"]):
            each.update(p50=each["p50"] / 10, min=each["min"] / 10)
        if row["key"] == "board/linux-arm64/executorch/mlp-fp32":
            row["outputs"][0]["sha256"] = "0" * 64
        for each in row["rounds"]:
            each["load"] = IDLE
    baseline.write_text(json.dumps(planted))
    # Other tests keep this machine busy, which would be a doubt; and a layer of 5 µs cannot be 10 µs slower.
    rows = [json.loads(line) for line in journal.read_text().splitlines() if line]
    for row in rows:
        for each in row["result"].get("rounds", ()):
            each.update(p50=each["p50"] * 10, min=each["min"] * 10, load=IDLE)
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))
    begun = time.monotonic()
    words = ("--resume", "--json", "--baseline", str(baseline), "--fail-on-regression", "10%")
    printed, err = _end(start(*words), 34)
    assert time.monotonic() - begun < 60  # nothing was run again
    assert all(cell["reused"] for cell in printed["cells"])
    worse = {(each["key"].partition("/")[0], each["what"]) for each in printed["changes"] if each["verdict"] == "worse"}
    assert worse == {("bench", "latency p50"), ("board", "digest of output0")}
    assert "3 figures are worse than baseline.json by more than 10%" in err
    assert sum(suite.failures for suite in JUnitXml.fromfile(str(folder / "junit.xml"))) == 3
