"""The same networks made in all ways that upstream's exporter has: planning, files of weights, quantizers, parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from verify.sound.making import Program, lower, made, runs, settings, sound


def _lines() -> Any:
    return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def _images() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Hardtanh(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def _mixed() -> Any:
    """Delegates with kernels and views between them."""

    def function(m: Any, x: Any) -> Any:
        y = m.first(x).view(2, 4, 8).cumsum(1).view(2, 32)
        z = functional.gelu(m.second(y)).flip(1)
        return m.third(z) + x[:, :4], y.view(-1)[:3]

    return made(function, first=nn.Linear(32, 32), second=nn.Linear(32, 16), third=nn.Linear(16, 4))


_NETS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "lines": (_lines, lambda: (torch.randn(2, 32),)),
    "images": (_images, lambda: (torch.randn(1, 3, 10, 10),)),
    "mixed": (_mixed, lambda: (torch.randn(2, 32),)),
}


def _net(name: str) -> tuple[Any, tuple[Any, ...]]:
    make, given = _NETS[name]
    return make().eval().requires_grad_(False), given()


def _naive() -> Any:
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, naive

    return settings(memory_planning_algo=MemoryPlanningAlgorithmSuite(algo_list=[naive]))


_SETTINGS: dict[str, Callable[[], Any]] = {
    "unplanned-inputs": lambda: settings(inputs=False),
    "unplanned-outputs": lambda: settings(outputs=False),
    "unplanned": lambda: settings(inputs=False, outputs=False),
    "naive": _naive,
    "aligned": lambda: settings(alignment=64, segment_alignment=4096),
    "views-copied": lambda: settings(remove_view_copy=False),
    "in-place": lambda: settings(run_reinplace_pass=True),
    "weights-apart": lambda: settings(external_constants=True),
    "delegates-inside": lambda: settings(extract_delegate_segments=False),
    "constants-aligned": lambda: settings(constant_tensor_alignment=64),
    "traced": lambda: settings(emit_stacktrace=True),
}


def _set(net: str, way: str, *, delegate: bool) -> Program:
    module, given = _net(net)
    return sound(module, given, delegate=delegate, config=_SETTINGS[way](), executions=(1, 2))


_PARTS: dict[str, dict[str, Any]] = {
    "by-operators": {"per_op_mode": True},
    "weights-given": {"force_non_static_weights_for_f32_linear": True},
}


def _parted(net: str, way: str) -> Program:
    module, given = _net(net)
    return sound(module, given, delegate=True, options=_PARTS[way])


_QUANTIZERS: dict[str, dict[str, bool]] = {
    "per-tensor": {},
    "per-channel": {"is_per_channel": True},
    "dynamic": {"is_dynamic": True},
    "dynamic-per-channel": {"is_dynamic": True, "is_per_channel": True},
}


def _quantized(net: str, way: str, *, delegate: bool) -> Program:
    """By upstream's quantizer; without a delegate kernels of its own compute with what it gives."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as upstream
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module, given = _net(net)
    quantizer = upstream.XNNPACKQuantizer().set_global(upstream.get_symmetric_quantization_config(**_QUANTIZERS[way]))
    prepared = prepare_pt2e(torch.export.export(copy.deepcopy(module), given, strict=False).module(), quantizer)
    prepared(*given)
    converted = convert_pt2e(prepared)
    return lower(torch.export.export(converted, given, strict=False), runs(converted, [given]), delegate=delegate)


def _weights_only() -> Program:
    """torchao's 8-bit rows with 4-bit weights. Upstream has no kernels for them outside of XNNPACK."""
    from torchao.quantization import quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig

    module, given = _net("lines")
    module = module.to(torch.float32)
    groups = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    quantize_(module, groups, lambda layer, _: isinstance(layer, nn.Linear) and layer.in_features % 32 == 0)
    return lower(torch.export.export(module, given, strict=False), runs(module, [given]), delegate=True)


def _stages(*, delegate: bool) -> Program:
    """By upstream's older steps, one after another."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge

    module, given = _net("images")
    edge = to_edge(
        torch.export.export(module, given, strict=False), compile_config=EdgeCompileConfig(_check_ir_validity=False)
    )
    edge = edge.to_backend(XnnpackPartitioner()) if delegate else edge
    return Program(bytes(edge.to_executorch().buffer), (), runs(module, [given]))


_NEVER_MADE = ("mixed-traced-delegated", "images-weights-given")
"""Upstream's exporter fails on these two."""

PROGRAMS: dict[str, Callable[[], Program]] = {
    **{
        f"{net}-{way}{'-delegated' if delegate else ''}": partial(_set, net, way, delegate=delegate)
        for net in _NETS
        for way in _SETTINGS
        for delegate in (False, True)
    },
    **{f"{net}-{way}": partial(_parted, net, way) for net in _NETS for way in _PARTS},
    **{
        f"{net}-{way}{'-delegated' if delegate else ''}": partial(_quantized, net, way, delegate=delegate)
        for net in _NETS
        for way in _QUANTIZERS
        for delegate in (False, True)
    },
    "4-bits-delegated": _weights_only,
    "older-steps": partial(_stages, delegate=False),
    "older-steps-delegated": partial(_stages, delegate=True),
}
for _name in _NEVER_MADE:
    del PROGRAMS[_name]
