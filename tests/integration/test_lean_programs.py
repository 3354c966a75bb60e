"""What programs need of the lean engine beyond operators, against PyTorch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import Bundle
from models.lowering import shortcuts
from tests.support.bundles import lean
from tests.support.named import named
from tests.support.processes import ran
from verify.agree.look import execute, native
from verify.agree.programs import About, Compared

__all__ = ["lean"]

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def _hastened() -> Iterator[None]:
    with shortcuts.in_torch(), shortcuts.in_lowering():
        yield


NAMES = named("verify/operators/programs.py", "PROGRAMS")
EACH = named("verify/sound/table.py", "EACH")
"""Of `verify.sound`: of each kind one in every run of the tests."""


@pytest.mark.parametrize("name", [*NAMES, *EACH])
def test_a_program_does_what_pytorch_does(lean: Bundle, tmp_path: Path, name: str) -> None:
    import torch

    from verify.operators.programs import KERNELS
    from verify.sound.table import programs

    torch.manual_seed(3)
    program = programs()[name if name in EACH else f"runtime-{name}"]()
    assert set(KERNELS.get(name, ())) <= set(program.operators)
    missing = set(program.operators) - set(lean.manifest.offers.operators)
    assert not missing
    file, data = tmp_path / "model.pte", tuple(tmp_path / f"{one}.ptd" for one in program.data)
    file.write_bytes(program.buffer)
    for one, blob in zip(data, program.data.values(), strict=True):
        one.write_bytes(blob)
    for number, run in enumerate(program.runs):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        inputs = _saved(tmp_path / f"{number}-in", run.inputs)
        first = tuple((to, _saved(tmp_path / f"{number}-{at}-", given)) for at, (to, given) in enumerate(run.first))
        about = Compared(About(name), file, inputs, (), (), run.executions, run.method, data, first)
        answer = execute(native(lean), about, folder)
        if not run.results:
            wanted = "max_context_length" if name.startswith("language") else "10x4"
            assert wanted in str(answer.error), "inputs beyond what the program was exported for"
            continue
        assert not answer.error
        for index, (output, want) in enumerate(zip(answer.outputs, run.results, strict=True)):
            got, expected = np.load(output), want.detach().contiguous().numpy()
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"output {index}"
            np.testing.assert_allclose(got, expected, 1e-5, 1e-5, err_msg=f"output {index}")


def _saved(prefix: Path, values: Sequence[Any]) -> tuple[Path, ...]:
    files = tuple(prefix.with_name(f"{prefix.name}{index}.npy") for index in range(len(values)))
    for file, value in zip(files, values, strict=True):
        np.save(file, value.contiguous().numpy())
    return files


FIXED = [("mlp", "5x23"), ("cnn", "1x2x8x8")]
"""Inputs within every bound that have another size than the network was made for, where the export fixed it."""


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLP of 24 features for any batch and a CNN of 3 channels for any image, delegated and not."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch.export import Dim, export

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("dynamic")
    mlp = torch.nn.Sequential(torch.nn.Linear(24, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
    cnn = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    image = {2: Dim("height", min=4, max=32), 3: Dim("width", min=4, max=32)}
    cases = [
        ("mlp", mlp, torch.ones(4, 24), {0: Dim("batch", min=1, max=8)}),
        ("cnn", cnn, torch.ones(1, 3, 16, 16), image),
    ]
    for name, module, x, shapes in cases:
        exported = export(module, (x,), dynamic_shapes=(shapes,))
        for kind, partitioner in (("xnnpack", [XnnpackPartitioner()]), ("portable", [])):
            edge = to_edge_transform_and_lower(exported, partitioner=partitioner)
            edge.to_executorch().save(str(folder / f"{name}-{kind}.pte"))
    return folder


def _run(bundle: Bundle, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(bundle.path / "bin" / "pte_runner"), "--json", *words]
    return ran(argv, timeout=60)


@pytest.mark.parametrize("kind", ["portable", "xnnpack"])
@pytest.mark.parametrize(("name", "shape"), FIXED)
def test_sizes_that_an_export_fixed_are_no_other(
    lean: Bundle, dynamic: Path, tmp_path: Path, name: str, kind: str, shape: str
) -> None:
    program = f"--model_path={dynamic / f'{name}-{kind}.pte'}"
    good = {"mlp": "5x24", "cnn": "1x3x16x8"}[name]
    assert _run(lean, program, f"--input_shapes={good}").returncode == 0
    done = _run(lean, program, f"--input_shapes={shape}", f"--output_file={tmp_path / 'y'}")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (6, "input"), done
    declared = {"mlp": "8x24", "cnn": "1x3x32x32"}[name]
    assert f"Input 0: declared float32 at most {declared}, given float32 {shape}." in error["message"]
    assert error["fix"]
    assert list(tmp_path.iterdir()) == []


ROWS = 33
"""More than two tiles of the tallest kernel, which takes 16 rows."""


@pytest.mark.parametrize(("scheme", "near"), [("fp16", 5e-3), ("qd8_qb4w", 1e-5)])
def test_a_row_does_not_depend_on_how_many_there_are(lean: Bundle, tmp_path: Path, scheme: str, near: float) -> None:
    """Kernels take some rows at a time, and their last tile has rows that are not there.

    96 outputs: more than the widest kernel's 64, whose last tile is narrower then.
    """
    import torch

    from models.loading import Prepared
    from models.lowering import lowering, quantize
    from models.request import partitioners
    from models.request.options import Options
    from models.zoo.schemes import get_scheme

    torch.manual_seed(5)
    module, rows = torch.nn.Linear(64, 96).eval(), torch.randn(ROWS, 64)
    want = module(rows).detach().numpy()  # half precision changes the module itself
    model = Prepared(module, (rows,), ({0: torch.export.Dim("rows", min=1, max=ROWS)},), ())
    quantized = quantize.apply(model, get_scheme(scheme))
    chosen = partitioners.make(("xnnpack",), Options())
    lowering.lower_all({"forward": quantized.program}, chosen)["forward"].manager.save(str(tmp_path / "model.pte"))
    inputs = quantized.inputs[0].numpy()

    def run(some: np.ndarray) -> np.ndarray:
        np.save(tmp_path / "x.npy", some)
        words = [f"--inputs={tmp_path / 'x.npy'}", f"--output_file={tmp_path / 'y'}", "--warmup=0"]
        done = _run(lean, f"--model_path={tmp_path / 'model.pte'}", *words)
        assert done.returncode == 0, done.stderr
        return np.asarray(np.load(tmp_path / "y0.npy"), np.float32)

    alone = np.concatenate([run(inputs[i : i + 1]) for i in range(ROWS)])
    assert np.abs(alone - want).max() < 0.1 * np.ptp(want), "4 bits are near the model, too"
    for count in range(2, ROWS + 1):
        np.testing.assert_allclose(run(inputs[:count]), alone[:count], near, near, err_msg=f"{count} rows")
