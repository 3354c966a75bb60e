"""One per cent of one layer: a fault that small must be seen, for a tolerance that hides it hides real ones, too."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.formats.program import load_program
from deploy.run.compare import Comparison, compare
from models.export import export

pytestmark = pytest.mark.export

SAMPLE = {("mixed", "fp16"), ("mlp", "qs8"), ("mlp", "qd8_qc8w"), ("mixed", "qd8_qb4w"), ("mixed", "fp32")}
"""Each scheme; ./inv test --all plants it also where a deep net hides it (`HIDES`)."""
FAULT = 1.01
_MOST = 8
"""Layers of a program: of deeper ones as many, evenly over its depth."""
HIDES = {("mobilenet_v2", "fp16"), ("mobilenet_v2", "qs8")}
"""Programs with layers whose fault nobody can see: rounding moves the output by as much, in the same pattern."""
_NEARLY = 0.005
"""Of such a layer rounding may seem to be at least this part. In int8, a fault may move outputs by half as much."""


@cache
def _exported(model: str, scheme: str) -> Path:
    return export(model, scheme)


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
            numpy.save(buffer, (got.double() + bad.double() - good.double()).to(got.dtype).numpy())
            (tmp_path / "got.npy").write_bytes(buffer.getvalue())
            found.append(compare(f"output{index}", tmp_path / "got.npy", want, program.tolerance_of(index)))
        yield module_path(layer), found


@pytest.mark.parametrize(
    ("model", "scheme"), [*sorted(SAMPLE), *(pytest.param(*pair, marks=pytest.mark.long) for pair in sorted(HIDES))]
)
def test_one_per_cent_in_one_layer_is_seen(tmp_path: Path, model: str, scheme: str) -> None:
    folder = _exported(model, scheme)
    layers, hidden = 0, {}
    for layer, outputs in _verdicts(folder, tmp_path):
        layers += 1
        if not any(one.verdict == "differs" for one in outputs):
            hidden[layer] = [(one.max_abs, one.tolerance) for one in outputs]
    if (model, scheme) not in HIDES:
        assert not hidden
        return
    with numpy.load(folder / "layers0.npz") as arrays:
        limits = dict(zip(arrays["names"].tolist(), arrays["limits"].tolist(), strict=True))
    assert {name: limits[name] for name in hidden if limits[name] < _NEARLY} == {}
    seen = layers // 2 - 1 if scheme == "fp16" else 1
    assert layers - len(hidden) >= seen, "what carries all of the output is seen"


def test_a_layer_that_is_wrong_is_named(tmp_path: Path) -> None:
    folder = _exported("mixed", "fp16")
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
    want = numpy.load(folder / "output0.npy")
    for name, factor in {"wrong": FAULT, "nothing": 0.0}.items():
        numpy.save(tmp_path / f"{name}.npy", (want * factor).astype(numpy.float32))
        found = compare(name, tmp_path / f"{name}.npy", folder / "output0.npy", load_program(folder).tolerance)
        assert found.verdict == "differs", found
