"""Schemes beyond the table's five: models that their owner has quantized, and upstream's further options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.errors import ExportError
from core.formats.bundle import RUNNER
from core.formats.program import Program, load_program
from core.paths import ROOT, cache_dir
from models.export import export
from models.reference.host import Host
from tests.support.processes import ran
from toolchains.bundle.builder import build
from toolchains.targets import host_target

pytestmark = pytest.mark.export

FILE = ROOT / "tests" / "fixtures" / "models" / "quantized.py"

Exporter = Callable[..., Program]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def exported(out: Path) -> Iterator[Exporter]:
    with Host(cache_dir("logs") / "export-tests.log") as host:

        def call(function: str, scheme: str, **options: Any) -> Program:
            return load_program(export(f"{FILE}:{function}", scheme, options=options, out=out, host=host))

        yield call


@pytest.mark.parametrize(("function", "words"), [("converted", "one rounding flipped"), ("by_torchao", "dynamic int8")])
def test_a_model_that_its_owner_has_quantized(exported: Exporter, function: str, words: str) -> None:
    program = exported(function, "fp32")
    whole = exported("plain", "fp32")
    assert program.quantization.scheme == "own"
    assert words in program.tolerance.why
    assert program.size < whole.size / 2, "its weights are whole numbers"
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.tolerance.atol
    with pytest.raises(ExportError, match="quantized already") as caught:
        exported(function, "qs8")
    assert caught.value.hint.startswith("--scheme fp32")


@pytest.mark.build
def test_a_model_trained_with_fake_quantization(exported: Exporter, out: Path, tmp_path: Path) -> None:
    program = exported("trained", "fp32")
    assert (program.quantization.scheme, program.delegates, program.undelegated) == ("own", 1, ())
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.tolerance.atol, "its dropout left things out"
    assert numpy.abs(_run_by_lean(out / program.name, program, tmp_path)).max() <= program.tolerance.atol
    with pytest.raises(ExportError, match="prepared for quantization, but not quantized") as caught:
        exported("half_way", "fp32")
    assert "convert_pt2e" in caught.value.hint


def _run_by_lean(folder: Path, program: Program, to: Path) -> Any:
    """The differences of the first output from the reference."""
    bundle = build(host_target().name, "lean")
    words = [f"--model_path={folder / program.file}", f"--inputs={folder / 'input0.npy'}", f"--output_file={to}/y"]
    done = ran([bundle.path / RUNNER, *words], timeout=60)
    assert done.returncode == 0, done.stderr
    return numpy.load(to / "y0.npy") - numpy.load(folder / "output0.npy")


def test_an_own_quantizer(exported: Exporter) -> None:
    program = exported("plain", "qs8", quantizer=f"{FILE}:quantizer")
    assert program.quantization.skipped == ()
    assert program.delegates == 1
    assert program.size != exported("plain", "qs8", per_tensor=True).size
    with pytest.raises(ExportError, match="gave tuple, not a quantizer"):
        exported("plain", "qs8", quantizer=f"{FILE}:plain")
    with pytest.raises(ExportError, match="Static quantization failed") as caught:
        exported("plain", "qs8", quantizer=f"{FILE}:faulty")
    assert "in annotate: return model.nowhere" in caught.value.cause


def test_four_bits_for_each_channel_and_other_groups(exported: Exporter) -> None:
    eight, four = exported("plain", "qd8_qc8w"), exported("plain", "qd8_qc8w", bits=4)
    blocks, larger = exported("plain", "qd8_qb4w"), exported("plain", "qd8_qb4w", group=64)
    # Of 64 input features a group of 64 is a whole channel.
    assert four.size == larger.size < blocks.size < eight.size
    for program in (eight, four, blocks, larger):
        assert program.agreement is not None
        assert 0 < program.agreement.max_abs <= program.agreement.limit
        assert {one.name for one in program.undelegated} == set()


@pytest.mark.build
def test_a_program_that_upstreams_runtime_gets_wrong_has_pytorchs_reference(
    exported: Exporter, out: Path, tmp_path: Path
) -> None:
    program = exported("fork", "qd8_qc8w")
    assert program.reference_engine.startswith("torch ")
    assert any("gets the program wrong" in line for line in program.warnings)
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    folder = out / program.name
    assert numpy.abs(_run_by_lean(folder, program, tmp_path)).max() <= program.tolerance.atol
    # One activation may round to the next integer: its step, times a weight below 1/8.
    given = numpy.load(folder / "input0.npy")
    step = (given.max() - given.min()) / 255
    assert program.tolerance.atol == pytest.approx(step / 8, rel=0.05)


@pytest.mark.parametrize("scheme", ["qd8_qc8w"])
def test_a_layer_may_stay_in_float(exported: Exporter, scheme: str) -> None:
    all_of_them, some = exported("plain", scheme), exported("plain", scheme, layers="0:float")
    assert 2 * 64 * 64 < some.size - all_of_them.size < 4 * 64 * 64
    assert some.quantization.skipped == ()
    assert not [one for one in some.warnings if "not quantized" in one]
    assert all_of_them.name != some.name


def test_layers_in_eight_and_in_four_bits(exported: Exporter, tmp_path: Path) -> None:
    mixed = exported("plain", "qd8_qb4w", layers="2:int8")
    assert exported("plain", "qd8_qb4w").size < mixed.size < exported("plain", "qd8_qc8w").size
    assert numpy.prod(mixed.outputs[0].shape) == 32
