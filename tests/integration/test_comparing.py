"""``./inv compare`` on this machine: a labelled file in, accuracy, cost, front and report out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from core.paths import programs_dir
from models.export import export
from tests.conftest import Inv

pytestmark = [pytest.mark.build, pytest.mark.export]


def test_a_labelled_file(inv: Inv, tmp_path: Path) -> None:
    folder = export("mlp", "fp32")
    assert folder.parent == programs_dir()
    want = np.load(folder / "output0.npy")
    rows = np.load(folder / "input0.npy")
    labels = want.argmax(axis=1)
    labels[0] = want[0].argsort()[-2]  # one of ten rows has the second best as its label
    repeated, planted = np.concatenate([rows, rows[1:3]]), np.concatenate([labels, labels[1:3]])
    np.savez(tmp_path / "rows.npz", rows=repeated, labels=planted)
    (tmp_path / "own.py").write_text(
        "def count(outputs, labels):\n    return sum(len(one) for one in labels) + outputs[0][0].shape[1] / 100\n"
    )
    words = ["--model", "mlp", "--schemes", "fp32,fp16,qd8_qb4w", "--engines", "lean", "--json"]
    words += ["--num-executions", "5", "--samples", str(tmp_path / "rows.npz")]
    done = inv("compare", *words, "--metric", f"{tmp_path / 'own.py'}:count")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["samples"], found["of"], found["by"]) == (2, 2, "metric")
    assert found["reference"] == {"cosine": 1.0, "psnr": "Infinity", "top1": 0.9, "top5": 1.0, "metric": 10.1}
    exact, half, coarse = found["rows"]
    assert exact["accuracy"]["top1"] == half["accuracy"]["top1"] == 0.9
    assert exact["accuracy"]["psnr"] > 100 > half["accuracy"]["psnr"] > 60 > coarse["accuracy"]["psnr"] > 20
    assert exact["size"] > half["size"] > coarse["size"] > 0
    assert coarse["front"]
    assert all(one["p50"] > 0 and one["load"] > 0 and one["memory"] > 1 << 20 for one in found["rows"])
    assert json.loads((Path(found["folder"]) / "compare.json").read_text(encoding="utf-8"))["rows"] == found["rows"]

    broken = inv("compare", *words, "--metric", f"{tmp_path / 'own.py'}:missing")
    assert broken.returncode == 3
    assert "it has count" in broken.stderr
