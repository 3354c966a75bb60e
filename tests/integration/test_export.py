"""Exports for real: torch, the quantizers, the partitioners, upstream's runtime."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.console import shown
from core.errors import ConfigError, ExportError
from core.formats.program import Program, load_program
from core.paths import ROOT
from models.export import export
from models.lowering.progress import log_path
from models.reference.host import Host
from models.zoo import everything, get_model
from models.zoo.schemes import get_scheme

pytestmark = pytest.mark.export

FIXTURES = ROOT / "tests" / "fixtures" / "models"
SMALL = [
    ("linear", "qd8_qb4w"), ("conv", "qs8"), ("conv1x1", "fp16"), ("matmul", "fp32"), ("mlp", "qd8_qc8w"),
    ("mixed", "fp32"),
]  # fmt: skip
"""Every small model and every scheme; test_zoo.py exports all pairs, and runs them with both engines."""

Exporter = Callable[..., tuple[Path, Program]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where exports go that several tests look at."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def exported(folder: Path, host: Host) -> Exporter:
    """Export a model with default options; one of the zoo only if that in ``dist/programs`` is out of date."""
    zoo = {model for model, _ in everything()}

    def call(model: str, scheme: str = "fp32") -> tuple[Path, Program]:
        path = export(model, scheme, host=host, out=None if model in zoo else folder)
        return path, load_program(path)

    return call


@pytest.fixture
def fresh(tmp_path: Path, host: Host) -> Exporter:
    def call(model: str, scheme: str = "fp32", **more: Any) -> tuple[Path, Program]:
        path = export(model, scheme, out=tmp_path / "out", host=host, **more)
        return path, load_program(path)

    return call


def fixture(name: str) -> str:
    """``good:conv`` as the command line names it."""
    file, _, function = name.partition(":")
    return f"{FIXTURES / file}.py:{function}"


def eager(model: str) -> tuple[Any, list[Any]]:
    """What the float model gives in PyTorch on its example inputs, without any of the export's own code for that."""
    import importlib

    import torch

    module_name, _, function = get_model(model).maker.partition(":")
    module, inputs, *_ = getattr(importlib.import_module(module_name), function)()
    with torch.no_grad():
        return module.eval()(*inputs).numpy(), [one.numpy() for one in inputs]


# Largest difference from the float model, in parts of the output's spread: what int8 and int4 cost on these models.
LIMITS = {"fp32": 2e-6, "fp16": 2e-3, "qs8": 0.05, "qd8_qc8w": 0.01, "qd8_qb4w": 0.08}


def limit_of(scheme: str) -> float:
    """What of the outputs' spread the runtime may be off; sums that are kept in half precision are rounded each time.

    Seen for linear's sums of 256 products: 1e-3 where they are kept in float32, 2.1e-3 on AVX512 with half precision.
    """
    halves = {"avx512_fp16", "asimdhp"} & set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return LIMITS[scheme] * (2 if scheme == "fp16" and halves else 1)


@pytest.mark.parametrize(("model", "scheme"), SMALL)
def test_a_small_model_in_a_scheme(exported: Exporter, host: Host, tmp_path: Path, model: str, scheme: str) -> None:
    path, program = exported(model, scheme)
    want, inputs = eager(model)
    got = numpy.load(path / program.outputs[0].file)
    assert (program.outputs[0].dtype, got.dtype.name) == (("float16",) * 2 if scheme == "fp16" else ("float32",) * 2)
    assert got.shape == want.shape == program.outputs[0].shape
    for index, one in enumerate(inputs):
        saved = numpy.load(path / program.inputs[index].file)
        assert numpy.array_equal(saved, one.astype(saved.dtype))
    error = float(numpy.abs(got.astype(float) - want).max())
    spread = float(want.max() - want.min())
    assert error <= limit_of(scheme) * spread
    if get_scheme(scheme).weight_bits or scheme == "fp16":
        assert error > 0, "the scheme changed nothing: was it applied?"
    assert program.agreement is not None
    assert program.agreement.max_abs == pytest.approx(error, abs=1e-9)
    assert program.agreement.max_abs <= program.agreement.limit
    # Bit for bit what the runtime computes again.
    copy = shutil.copytree(path, tmp_path / "copy")
    assert [one.sha256 for one in host.run_often(copy, program.file, program.inputs, (1,))[1]] == [
        one.sha256 for one in program.outputs
    ]
    assert program.quantization.skipped == ()
    assert program.warnings == ()
    assert program.reference_engine.startswith("executorch 1.5.1")
    assert program.backends == ("XnnpackBackend",)
    assert {one.name for one in path.iterdir()} == {*program.files, "program.json"}
    assert {"model.pte", "model.etrecord", "input0.npy", "output0.npy"} <= set(program.files)
    if model != "mixed":
        assert (program.delegates, program.undelegated) == (1, ())


def test_what_stays_outside_the_delegate_is_named_with_its_cause(exported: Exporter, host: Host) -> None:
    _, program = exported("mixed", "fp32")
    outside = {one.name: one for one in program.undelegated}
    assert set(outside) == {"aten::embedding.out", "aten::native_layer_norm.out"}, "attention is in a delegate"
    assert outside["aten::embedding.out"].why == "XnnpackPartitioner: has no rule for aten::embedding"
    assert outside["aten::native_layer_norm.out"].count == 2
    # The names are those by which a runtime has kernels, or the preflight would look for the wrong ones.
    assert host.missing(list(outside)) == []
    assert host.missing(["aten::embedding", "aten::no_such.out"]) == ["aten::embedding", "aten::no_such.out"]
    assert program.delegates > 1
    assert {one.name: one.count for one in program.delegated}["aten::linear"] == 7


def test_the_partitioners_own_reason_is_given(exported: Exporter) -> None:
    _, program = exported("mixed", "fp16")
    outside = {one.name: one.why for one in program.undelegated}
    assert outside["aten::gelu.out"] == "XnnpackPartitioner: GELU does not support fp16"
    assert "float16 to torch.float32 is not supported" in outside["dim_order_ops::_to_dim_order_copy.out"]
    _, single = exported("mixed", "fp32")
    assert "aten::gelu.out" not in {one.name for one in single.undelegated}


def test_a_convolution_with_relu_that_stays_float_is_reported(
    exported: Exporter, capfd: pytest.CaptureFixture[str]
) -> None:
    path, program = exported(fixture("good:conv_relu"), "qd8_qc8w")
    (skipped,) = program.quantization.skipped
    assert skipped.startswith("0 (conv2d 16x8x3x3): ")
    assert "ReLU" in skipped
    assert f"not quantized: {skipped}" in program.warnings
    assert f"Warning: {program.name}: not quantized: 0 (conv2d" in capfd.readouterr().err.replace("\n", " ")
    # It is true: the weights are in the file as floats.
    bare, clean = exported(fixture("good:conv"), "qd8_qc8w")
    weights = 16 * 8 * 3 * 3
    assert program.size - clean.size > 2 * weights
    assert clean.quantization.skipped == ()
    assert clean.warnings == ()
    assert (bare / "model.pte").stat().st_size < (path / "model.pte").stat().st_size


@pytest.mark.parametrize(
    ("model", "scheme", "skipped"),
    [
        ("depthwise", "qd8_qc8w", ["0 (conv2d 8x1x3x3): dynamic quantization takes no grouped"]),
        ("odd_width", "qd8_qb4w", ["0 (linear 64x48): its 48 input features are not a multiple"]),
        ("conv", "qd8_qb4w", ["0 (conv2d 16x8x3x3): XNNPACK has no convolution with int4"]),
        ("product", "qs8", ["table (matmul 32x16): the quantizer has no pattern"]),
        ("attention", "qd8_qc8w", ["attention (linear 96x32): torchao", "attention (linear 32x32): torchao"]),
        ("dead", "qd8_qc8w", []),  # what no output needs is in no program
    ],
)
def test_other_layers_that_a_scheme_leaves_float(
    exported: Exporter, model: str, scheme: str, skipped: list[str]
) -> None:
    _, program = exported(fixture(f"good:{model}"), scheme)
    found = program.quantization.skipped
    assert len(found) == len(skipped)
    assert all(one.startswith(start) for one, start in zip(found, skipped, strict=True)), found
    all_of_them = {"attention": 2, "conv": 1}.get(model) == len(skipped)
    assert any("quantized nothing at all" in warning for warning in program.warnings) == all_of_them


@pytest.mark.parametrize("model", ["lstm", "lstm_unbatched", "lines"])
def test_what_no_quantizer_knows_is_quantized_at_run_time(exported: Exporter, model: str) -> None:
    (_, plain), (_, small) = exported(fixture(f"good:{model}")), exported(fixture(f"good:{model}"), "qd8_qc8w")
    assert small.quantization.skipped == small.warnings == ()
    assert plain.size - small.size > 2 * 4 * 32 * (16 + 32), "a byte for each of its weights, not four"


@pytest.mark.parametrize(("given", "opened"), [
    ({}, True), ({"scale": 0.3}, True), ({"dropout_p": 0.0, "attn_mask": None}, True),
    ({"is_causal": True}, False), ({"enable_gqa": True}, False),
    *(({"attn_mask": mask}, opened) for mask, opened in (
        (lambda torch, mask, seen: torch.ones(5, 1, dtype=torch.bool).expand(5, 5), True),
        (lambda torch, mask, seen: torch.where(torch.ones(5, 5) > 0, 0.0, -9.0), True),
        (lambda torch, mask, seen: torch.ones(5, 5).tril() > 0, False), (lambda torch, mask, seen: seen, False),
        (lambda torch, mask, seen: torch.ones(5, 5) * mask.all(), False),
        (lambda torch, mask, seen: torch.ones(5, 5).view(25).mul_(0.5).view(5, 5), False),
        (lambda torch, mask, seen: torch.rand(5, 5) < 2, False), (lambda torch, mask, seen: mask, False),
    )),
])  # fmt: skip
def test_attention_is_opened_where_no_mask_hides(given: dict[str, Any], opened: bool) -> None:
    """Masks may leave a row without a score, which a softmax would make NaNs of: those are searched for."""
    import torch

    from models.lowering.attention import open_unmasked

    class Net(torch.nn.Module):  # type: ignore[misc]  # the types of torch are not read here
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.ones(5, 5, dtype=torch.bool))

        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            words = {name: one(torch, mask, self.seen) if callable(one) else one for name, one in given.items()}
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **words)

    inputs = (*(torch.randn(2, 4, n, 8) for n in (5, 5, 5)), torch.arange(25).reshape(5, 5) % 7 > 4)
    program = torch.export.export(Net(), inputs, strict=False)
    open_unmasked(program, [])
    assert opened == (not any("scaled_dot" in str(node.target) for node in program.graph.nodes))
    torch.testing.assert_close(program.module()(*inputs), Net()(*inputs))


@pytest.mark.parametrize(
    ("around", "part", "pieces"),
    [
        ("relu", lambda x: x.split([2, 4], 1)[1], 0),
        ("relu", lambda x: x.chunk(3, -1)[-1] + x.split([1, 1, 2], -1)[0], 0),
        ("relu", lambda x: x.unbind(0)[-1] - x.unbind(-3)[0], 0),
        ("relu", lambda x: x.select(-1, -2), 0),
        ("relu", lambda x: x[:1].squeeze(0) - x[1:].squeeze() * x[:1, :1].squeeze((0, 1)), 0),
        # Twins: nothing near that a delegate computes, a type that it does not have, a result without dimensions.
        ("erf", lambda x: x.select(0, 1), 1),
        ("relu", lambda x: x.double().relu().select(0, 1).float(), 1),
        ("relu", lambda x: x.select(0, 1).select(0, 2).select(0, 3), 1),
    ],
)
@pytest.mark.filterwarnings("ignore")  # upstream has some
def test_pieces_do_not_interrupt_a_delegate(around: str, part: Callable[[Any], Any], pieces: int) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge

    from models.lowering.graphs import base_name, target_name
    from models.lowering.pieces import cut_as_taken

    class Net(torch.nn.Module):  # type: ignore[misc]  # the types of torch are not read here
        def forward(self, x: Any) -> Any:
            return getattr(torch, around)(part(getattr(torch, around)(x)))

    inputs = (torch.randn(2, 6, 4),)
    edge = to_edge(torch.export.export(Net(), inputs, strict=False))
    module = cut_as_taken([XnnpackPartitioner()], edge.exported_program().graph_module).graph_module
    assert torch.equal(module(*inputs)[0], Net()(*inputs))
    names = [base_name(target_name(node)) for node in module.graph.nodes if node.op == "call_function"]
    kinds = ("aten::split_with_sizes_copy", "aten::select_copy", "aten::squeeze_copy")
    assert sum(name in kinds for name in names) == pieces


def test_several_partitioners_take_turns(exported: Exporter, fresh: Exporter, tmp_path: Path) -> None:
    relu = f"{FIXTURES / 'partitioning.py'}:relu_only"
    _, both = fresh("mlp", partitioners=(relu, "xnnpack"))
    _, one = exported("mlp")
    assert (both.delegates, both.undelegated) == (5, ())
    assert one.delegates == 1
    assert both.partitioners == (relu, "xnnpack")
    assert both.outputs[0].sha256 == one.outputs[0].sha256


def test_a_backend_that_this_machine_cannot_run_is_no_lie(fresh: Exporter) -> None:
    _, program = fresh("mlp", partitioners=(f"{FIXTURES / 'partitioning.py'}:vulkan", "xnnpack"))
    assert "VulkanBackend" in program.backends
    assert program.reference_engine.startswith("torch ")
    assert any("lacks VulkanBackend" in warning for warning in program.warnings)


def test_a_crash_of_the_runtime_is_an_error_with_a_cause(fresh: Exporter, tmp_path: Path) -> None:
    # Upstream 1.5.1 lowers this without complaint and its runtime dies of it.
    with pytest.raises(ExportError, match="crashes on the program") as caught:
        fresh("mlp", "qs8", partitioners=(f"{FIXTURES / 'partitioning.py'}:float_only",))
    assert "SIG" in caught.value.cause
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("scheme", ["fp32", "qd8_qc8w"])
def test_dynamic_shapes(exported: Exporter, host: Host, tmp_path: Path, scheme: str) -> None:
    path, program = exported(fixture("good:batches"), scheme)
    copy = shutil.copytree(path, tmp_path / "copy")
    full = numpy.load(copy / "output0.npy")
    rows = numpy.load(copy / "input0.npy")[:3]
    numpy.save(copy / "input0.npy", rows)
    (three,) = host.run_often(copy, program.file, [program.inputs[0].model_copy(update={"shape": (3, 32)})], (1,))[1]
    assert three.shape == (3, 8)
    assert numpy.allclose(numpy.load(copy / "output0.npy"), full[:3], atol=program.tolerance.atol)


def test_the_ranges_of_dynamic_sizes_are_written_down(exported: Exporter) -> None:
    _, program = exported(fixture("good:batches"))
    ((batch, width),) = program.sizes
    assert (batch.text, width.text, bool(batch.symbol), width.symbol) == ("1..16", "32", True, "")
    _, program = exported(fixture("good:belonging"))
    first, second, third = program.sizes
    assert [one.text for one in (*first, *second, *third)] == ["2..8", "3", "2..8", "3", "4..16"]
    assert first[0].symbol == second[0].symbol == third[0].symbol != ""
    assert [(one.times, one.plus) for one in (first[0], third[0])] == [(1, 0), (2, 0)]
    _, program = exported("mlp")
    assert [one.text for one in program.sizes[0]] == [str(size) for size in program.inputs[0].shape]


def test_calibration_samples_are_used(exported: Exporter) -> None:
    _, bare = exported(fixture("good:small"), "qs8")
    _, told = exported(fixture("good:calibrated"), "qs8")
    assert any("calibrated on the example inputs only" in warning for warning in bare.warnings)
    assert told.warnings == ()
    assert told.tolerance.atol > 1.5 * bare.tolerance.atol, "samples three times as large widen the scales"


def test_each_output_has_its_own_tolerance(exported: Exporter) -> None:
    path, program = exported(fixture("good:two_outputs"), "qs8")
    assert [one.dtype for one in program.outputs] == ["float32", "int64"]
    scores = numpy.load(path / "output0.npy")
    assert numpy.array_equal(numpy.load(path / "output1.npy"), scores.argmax(axis=1))
    assert program.tolerance_of(0).atol > 0
    assert (program.tolerance_of(1).atol, program.tolerance_of(1).rtol) == (0.0, 0.0)
    assert program.tolerance == program.tolerance_of(0)


def test_bfloat16_is_kept_bit_by_bit(exported: Exporter) -> None:
    path, program = exported(fixture("good:brain"))
    assert [one.dtype for one in (*program.inputs, *program.outputs)] == ["bfloat16", "bfloat16"]
    stored = numpy.load(path / "output0.npy")
    assert stored.dtype == numpy.dtype("V2")
    # 3.0, -4.0 and infinity: sign, 8 bits of exponent, 7 of fraction.
    assert [hex(one) for one in stored.view("u2").ravel()] == ["0x4040", "0xc080", "0x7f80"]
    assert any("infinities" in warning for warning in program.warnings)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("nothing", "does not return a module with its example inputs"),
        ("only_module", "it returned a Linear"),
        ("not_a_module", "is not a torch.nn.Module"),
        ("bare_tensor", "they are a Tensor"),
        ("numbers", "they are a tuple of float, int"),
        ("argument", "missing 1 required positional argument: 'width'"),
        ("raises", "KeyError: 'no such checkpoint'"),
        ("leaves", "SystemExit: 3"),
        ("wrong_shape", "mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4)"),
        ("data_dependent", "if x.sum() > 0:"),
    ],
)
def test_a_wrong_function_is_told_what_is_wrong(fresh: Exporter, tmp_path: Path, function: str, words: str) -> None:
    with pytest.raises(ExportError) as caught:
        fresh(fixture(f"wrong:{function}"))
    text = str(caught.value)
    assert words in text
    assert "Traceback" not in text
    assert caught.value.hint
    assert shown(log := log_path(f"wrong-{function}-fp32")) in text
    assert "Traceback (most recent call last)" in log.read_text(encoding="utf-8")
    assert list((tmp_path / "out").iterdir()) == [], "nothing half-written"


def test_a_folder_that_no_export_made_is_left_alone(tmp_path: Path, host: Host) -> None:
    mine = tmp_path / "linear-fp32"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="The export cannot write to"):
        export("linear", "fp32", out=tmp_path, host=host)
    assert (mine / "notes.txt").read_text() == "mine"


def test_a_partitioner_of_ones_own_must_be_one(fresh: Exporter) -> None:
    with pytest.raises(ExportError, match="returned str, not a partitioner"):
        fresh("mlp", partitioners=(f"{FIXTURES / 'partitioning.py'}:no_partitioner",))
