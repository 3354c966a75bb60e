"""No verdict accuses the wrong side, and a fault of one per cent in one layer is seen."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ExportError
from core.formats.program import Program, load_program
from core.paths import ROOT
from deploy.run.compare import Comparison, compare
from models.export import export
from models.reference.host import Host
from models.zoo.schemes import get_scheme

FIXTURES = ROOT / "tests" / "fixtures" / "models" / "verdicts.py"

pytestmark = pytest.mark.export


def _exported(name: str, scheme: str, folder: Path, host: Host) -> tuple[Path, Program]:
    path = export(f"{FIXTURES}:{name}", scheme, out=folder, host=host)
    return path, load_program(path)


def _changed(path: Path, program: Program, output: int, by: float) -> Comparison:
    """What a deploy says of the reference with one element changed."""
    want = path / program.outputs[output].file
    got = np.load(want)
    got.reshape(-1)[0] += by
    np.save(path / "got.npy", got)
    return compare(f"output{output}", path / "got.npy", want, program.tolerance_of(output))


def test_images_with_channels_last_and_none_and_a_small_output(tmp_path: Path, host: Host) -> None:
    path, program = _exported("images", "fp32", tmp_path, host)
    assert program.warnings == ()
    assert program.reference_engine.startswith("executorch")
    assert [(one.order, one.shape) for one in program.inputs] == [((0, 2, 3, 1), (2, 3, 9, 7))]
    assert [one.name for one in program.cases] == ["least", "greatest"]
    assert [one.dtype for one in program.outputs] == ["float32", "none", "float64", "float32"]
    assert np.load(path / "output1.npy").dtype == np.dtype("V0")
    assert np.load(path / "output2.npy") == 0.1
    large, none, _, small = program.tolerances
    assert (none.atol, none.rtol, none.why) == (0.0, 0.0, "none")
    assert large.atol > 1e3 * small.atol
    for index in (0, 3):
        limit = program.tolerance_of(index).atol
        assert _changed(path, program, index, limit / 2).verdict == "agrees"
        wrong = _changed(path, program, index, 3 * limit)
        assert (wrong.verdict, wrong.outside) == ("differs", 1)
        assert wrong.truth.startswith("the reference is nearer to float64")


def test_values_in_any_order_are_rounded_and_flipped(tmp_path: Path, host: Host) -> None:
    _, program = _exported("attention", "qs8", tmp_path, host)
    assert [one.order for one in program.inputs] == [()]
    assert program.tolerance.rms is not None, "what a flipped rounding does was measured"
    assert program.agreement is not None and program.agreement.max_abs <= program.agreement.limit
    assert {one.name: one.count for one in program.delegated}["aten::linear"] == 2, "each call of one layer"
    assert [one for one in program.warnings if "calibrated" not in one] == []


def test_float64_decides_where_the_reference_is_coarse(tmp_path: Path, host: Host) -> None:
    path, program = _exported("norm", "fp16", tmp_path, host)
    (allowed,) = program.tolerances
    assert allowed.exact is not None and allowed.exact.far
    assert any("away from what float64 gives" in one and "tolerance" in one for one in program.warnings)
    want = path / program.outputs[0].file
    got = np.load(path / allowed.exact.file).astype(np.float16)
    assert np.abs(got - np.load(want)).max() > allowed.atol
    for change, verdict in ((0.0, "agrees"), (3 * allowed.atol, "differs")):
        got.reshape(-1)[3] += change
        np.save(path / "got.npy", got)
        found = compare("output0", path / "got.npy", want, allowed)
        assert (found.verdict, found.right) == (verdict, verdict == "agrees")
    # The same without float64, as an earlier version exported it.
    assert compare("output0", path / "got.npy", want, allowed.model_copy(update={"exact": None})).verdict == "differs"


def test_one_step_of_bfloat16_is_no_fault(tmp_path: Path, host: Host) -> None:
    path, program = _exported("brain", "fp32", tmp_path, host)
    assert program.warnings == ()
    assert program.reference_engine.startswith("executorch")
    assert _changed(path, program, 0, 2**-7).verdict == "agrees"
    assert _changed(path, program, 0, 0.2).verdict == "differs"


def test_what_upstreams_runtime_refuses_is_said_in_its_words(tmp_path: Path, host: Host) -> None:
    with pytest.raises(ExportError) as caught:
        _exported("volume", "fp32", tmp_path, host)
    assert "Expect input tensor to be 3-D or 4-D, but got, 5." in caught.value.cause
    assert "in operator aten::convolution.out" in caught.value.cause
    assert caught.value.hint.startswith("export it with --format onnx, deploy it with --engine onnxruntime")


def test_each_output_has_a_limit_of_its_own_against_the_model() -> None:
    import torch

    from models.reference.tolerances import agreement

    def agrees(model: list[Any], program: list[Any], scheme: str = "fp32", **more: Any) -> bool:
        found = agreement(get_scheme(scheme), model, program, **more)
        return found.max_abs <= found.limit

    large, small = torch.linspace(-1e3, 1e3, 9), torch.linspace(-1e-3, 1e-3, 9)
    wrong = small.clone()
    wrong[4] += 1e-5
    assert agrees([large, small, None], [large + 1e-3, small + 1e-8, None])
    assert not agrees([large, small, None], [large, wrong, None])
    assert not agrees([large, None], [large, small])
    assert not agrees([large, small], [large])
    spectrum = torch.complex(large, small)
    assert agrees([spectrum], [spectrum + 1e-3j])
    assert not agrees([spectrum], [spectrum + 1j])
    coarse = torch.linspace(0.1, 1, 9).bfloat16()
    assert agrees([coarse], [coarse * (1 + 2**-7)])
    assert not agrees([coarse], [coarse * 1.1])
    # As a float32 output of bfloat16 layers; without those it is a fault.
    assert agrees([coarse.float()], [coarse.float() * (1 + 2**-7)], types=[torch.bfloat16])
    assert not agrees([coarse.float()], [coarse.float() * (1 + 2**-7)])


def test_float64_says_nothing_where_it_has_no_meaning() -> None:
    import torch

    from models.reference import referencing

    def found(function: Any, *inputs: Any, scheme: str = "fp32") -> list[Any]:
        class Of(torch.nn.Module):  # type: ignore[misc]  # torch's types are not read here
            def forward(self, *given: Any) -> Any:
                return function(*given)

        return referencing.find(torch.export.export(Of(), inputs), get_scheme(scheme), inputs)

    half = torch.tensor([1.0, 2**-11], dtype=torch.float16)
    (sums, whole) = found(lambda x: (x.sum(), x.argmax()), half, scheme="fp16")
    assert float(sums) == 1 + 2**-11 != float(half.sum())
    assert whole is None
    assert found(lambda x: x.sum(), half, scheme="qs8") == []
    assert found(lambda x: x + torch.rand(2), half) == []
    assert found(lambda x: x.view(torch.int16) + 1, half) == []


SAMPLE = {("mixed", "fp16"), ("mlp", "qs8"), ("mlp", "qd8_qc8w"), ("mixed", "qd8_qb4w"), ("mixed", "fp32")}
"""Each scheme; ./inv test --all plants it also where a deep net hides it (`HIDES`)."""
FAULT = 1.01
_MOST = 8
"""Layers of a program: of deeper ones as many, evenly over its depth."""
HIDES = {("mobilenet_v2", "fp16"), ("mobilenet_v2", "qs8")}
"""Programs with layers whose fault nobody can see: rounding moves the output by as much, in the same pattern."""
_NEARLY = 0.005
"""Of such a layer rounding may seem to be at least this part. In int8, a fault may move outputs by half as much."""


def _graph(folder: Path) -> Any:
    """The program as it was before lowering, as a module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.devtools.etrecord import parse_etrecord

        return parse_etrecord(str(folder / "model.etrecord")).exported_program.module()


def _layers(module: Any) -> list[Any]:
    from models.reference.perturbing import layers

    nodes = layers(module)
    step = (len(nodes) - 1) / (_MOST - 1)
    return nodes if len(nodes) <= _MOST else [nodes[round(index * step)] for index in range(_MOST)]


def _run(module: Any, inputs: list[Any], wrong: Any = None) -> list[Any]:
    """The outputs; the layer ``wrong`` gives `FAULT` times what it should."""
    import torch

    from models.loading import reference

    class Faulty(torch.fx.Interpreter):  # type: ignore[misc]  # torch's types are not read here
        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            return value * FAULT if node is wrong else value

    with torch.no_grad():
        return reference.flat(Faulty(module).run(*inputs))


def _verdicts(folder: Path, tmp_path: Path) -> Iterator[tuple[str, list[Comparison]]]:
    """For each layer what a deploy would say of a device that computes it wrong: the reference, plus the fault."""
    from models.loading import reference
    from models.lowering.graphs import module_path

    program, module = load_program(folder), _graph(folder)
    inputs = [reference.load(folder, one) for one in program.inputs]
    right = _run(module, inputs)
    for layer in _layers(module):
        found = []
        for index, (good, bad) in enumerate(zip(right, _run(module, inputs, layer), strict=True)):
            want = folder / program.outputs[index].file
            got = reference.load(folder, program.outputs[index])
            buffer = io.BytesIO()
            np.save(buffer, (got.double() + bad.double() - good.double()).to(got.dtype).numpy())
            (tmp_path / "got.npy").write_bytes(buffer.getvalue())
            found.append(compare(f"output{index}", tmp_path / "got.npy", want, program.tolerance_of(index)))
        yield module_path(layer), found


@pytest.mark.parametrize(
    ("model", "scheme"), [*sorted(SAMPLE), *(pytest.param(*pair, marks=pytest.mark.long) for pair in sorted(HIDES))]
)
def test_one_per_cent_in_one_layer_is_seen(tmp_path: Path, model: str, scheme: str) -> None:
    folder = export(model, scheme)
    layers, hidden = 0, {}
    for layer, outputs in _verdicts(folder, tmp_path):
        layers += 1
        if not any(one.verdict == "differs" for one in outputs):
            hidden[layer] = [(one.max_abs, one.tolerance) for one in outputs]
    if (model, scheme) not in HIDES:
        assert not hidden
        return
    with np.load(folder / "layers0.npz") as arrays:
        limits = dict(zip(arrays["names"].tolist(), arrays["limits"].tolist(), strict=True))
    assert {name: limits[name] for name in hidden if limits[name] < _NEARLY} == {}
    seen = layers // 2 - 1 if scheme == "fp16" else 1
    assert layers - len(hidden) >= seen, "what carries all of the output is seen"


def test_a_layer_that_is_wrong_is_named(tmp_path: Path) -> None:
    folder = export("mixed", "fp16")
    allowed = load_program(folder).tolerance
    assert allowed.layers is not None
    assert (allowed.layers.count, allowed.layers.seen) == (7, 7)
    found = dict(_verdicts(folder, tmp_path))
    # The query's and the key's scale do the same to their product.
    for layer, named in {"value": "value", "up": "up", "head": "head", "query": "(query|key)"}.items():
        (one,) = found[layer]
        assert re.search(f"as if {named} gave 1.0[01]\\d+ times what it should, and rounding does 1 ± 0.00", one.why)


@pytest.mark.parametrize("scheme", ["fp32", "qd8_qc8w"])
def test_small_outputs_have_small_tolerances(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef make():\n    torch.manual_seed(0)\n"
        "    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))\n"
        "    with torch.no_grad():\n        net[2].weight.mul_(1e-6)\n        net[2].bias.mul_(1e-6)\n"
        "    return net, (torch.randn(4, 32),)\n"
    )
    folder = export(f"{tmp_path / 'net.py'}:make", scheme, out=tmp_path / "out")
    want = np.load(folder / "output0.npy")
    for name, factor in {"wrong": FAULT, "nothing": 0.0}.items():
        np.save(tmp_path / f"{name}.npy", (want * factor).astype(np.float32))
        found = compare(name, tmp_path / f"{name}.npy", folder / "output0.npy", load_program(folder).tolerance)
        assert found.verdict == "differs", found
