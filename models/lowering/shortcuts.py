"""The same program in half of the time: torch and the exporter without work that changes nothing."""

from __future__ import annotations

import atexit
import contextlib
import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

_NEW_OBJECTS = 50_000
"""Between two looks for cycles; Python's own number is 700."""


# Python looks for cycles once more when it ends: a second, with all of torch in memory.
atexit.register(gc.freeze)


@contextlib.contextmanager
def _rare_cycles() -> Iterator[None]:
    """Look for cycles seldom, and not in torch's own modules, which stay anyway."""
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


_SEEN: set[int] = set()
"""Digests of the dispatcher's lists of operators that have been created: they stay for the process's life."""


def _operators_once() -> contextlib.AbstractContextManager[Any]:
    """Create torch's composite operators when the dispatcher has new ones.

    torch.export looks through all operators of the dispatcher at each decomposition, only to create those that do not
    exist yet.
    """
    import torch
    from torch._export import utils

    create = utils._materialize_cpp_cia_ops

    def create_once() -> None:
        known = hash(tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")))
        if known not in _SEEN:
            create()
            _SEEN.add(known)

    return patch.object(utils, "_materialize_cpp_cia_ops", create_once)


def _graphs_that_have(
    part: str, of: Any, look: type, name: str, nothing: Any
) -> contextlib.AbstractContextManager[Any]:
    """Let a pass look for its patterns only in graphs that have an operator with ``part`` in its name.

    The pass exports each pattern before it looks for it: a fifth of the time of a small program.

    Args:
        of: the module with the function ``name`` that gives the patterns; without any, it gives ``nothing``.
        look: the pass.
    """
    call = look.call  # type: ignore[attr-defined]  # a pass has it

    def call_if_there(self: Any, graph_module: Any) -> Any:
        if any(part in str(node.target) for node in graph_module.graph.nodes):
            return call(self, graph_module)
        with patch.object(of, name, lambda: nothing):
            return call(self, graph_module)

    return patch.object(look, "call", call_if_there)


_WRITTEN: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Graphs that a pass without rules of its own has written, as they were then."""


def _written_once() -> contextlib.AbstractContextManager[Any]:
    """Let passes that changed nothing leave the graph as it is.

    Each of XNNPACK's passes writes the whole graph anew when it ends, shapes included, also if it found nothing to do:
    sixteen times for each delegate.
    """
    from executorch.exir.pass_base import ExportPass, PassResult, _ExportPassBase

    write = _ExportPassBase.call
    rules = [
        "_fx",
        *(name for name in dir(ExportPass) if name[0] != "_" and name not in ("call", "ensures", "requires")),
    ]

    def text(module: Any) -> str:
        nodes = module.graph.nodes
        lines = [f"{node.name} {node.op} {node.target} {node.args} {node.kwargs}" for node in nodes]
        return "\n".join([*lines, *(str(id(node.meta.get("val"))) for node in nodes if node.op == "placeholder")])

    def write_if_changed(self: Any, graph_module: Any) -> Any:
        if any(getattr(type(self), name) is not getattr(ExportPass, name) for name in rules):
            return write(self, graph_module)
        if _WRITTEN.get(graph_module.graph) == text(graph_module):
            return PassResult(graph_module, False)
        result = write(self, graph_module)
        _WRITTEN[result.graph_module.graph] = text(result.graph_module)
        return result

    return patch.object(_ExportPassBase, "call", write_if_changed)


_torchao: list[Any] = []
"""What torchao's operators are registered with; they stay for the process's life."""


def torchao_by_shape() -> None:
    """Let torchao's affine operators give only shapes where only shapes are asked for. Imports torchao.

    Their code is some twenty operators each, of which every pass over a graph asks the shapes, a costly question where
    sizes are open: two thirds of the time of a language model's export.
    """
    if _torchao:
        return
    import torch
    from torch._inductor.decomposition import decompositions  # has the code by operator
    from torch._subclasses import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor
    from torch.fx.experimental.proxy_tensor import get_proxy_mode
    from torchao.quantization import quant_primitives as code

    def shape_alone(value: Any) -> bool:
        return isinstance(value, (FakeTensor, FunctionalTensor)) and get_proxy_mode() is None

    def choose(input, mapping_type, block_size, target_dtype, *args, **options):  # type: ignore[no-untyped-def]  # noqa: A002
        if not shape_alone(input) or args or not options.keys() <= {"scale_dtype", "zero_point_dtype", "keepdim"}:
            return chosen(input, mapping_type, block_size, target_dtype, *args, **options)
        sizes, reduced = code._get_reduction_params(block_size, input.size())
        keep = bool(options.get("keepdim"))
        sizes = [1 if at in reduced else size for at, size in enumerate(sizes) if keep or at not in reduced]
        scale = input.new_empty(sizes, dtype=options.get("scale_dtype") or input.dtype)
        return scale, input.new_empty(sizes, dtype=options.get("zero_point_dtype") or torch.int32)

    def quantize(input, block_size, scale, zero_point, output_dtype, *args, **options):  # type: ignore[no-untyped-def]  # noqa: A002
        if shape_alone(input) and output_dtype in (torch.int8, torch.uint8):
            return input.new_empty(input.shape, dtype=output_dtype)
        return quantized(input, block_size, scale, zero_point, output_dtype, *args, **options)

    def dequantize(input, block_size, scale, zero_point, input_dtype, *args, output_dtype=torch.float32, **options):  # type: ignore[no-untyped-def]  # noqa: A002
        if shape_alone(input) and len(args) < 3:
            return input.new_empty(input.shape, dtype=output_dtype)
        return dequantized(
            input, block_size, scale, zero_point, input_dtype, *args, output_dtype=output_dtype, **options
        )

    chosen, quantized, dequantized = (
        decompositions[getattr(torch.ops.torchao, name).default]
        for name in ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
    )
    library = torch.library.Library("torchao", "IMPL")
    warnings.filterwarnings("ignore", message="Warning only once for all operators")
    for name, by in (
        ("choose_qparams_affine", choose), ("quantize_affine", quantize), ("dequantize_affine", dequantize),
    ):  # fmt: skip
        library.impl(name, by, "CompositeImplicitAutograd", allow_override=True)
    _torchao.append(library)


def _origins_shared() -> contextlib.AbstractContextManager[Any]:
    """Let nodes share the chain of nodes that they come from.

    Every pass makes the chain of each node one longer, and copies all of it. Nobody changes a link of it.
    """
    from torch.fx.traceback import NodeSource

    return patch.object(NodeSource, "__deepcopy__", lambda self, _: self, create=True)


@contextlib.contextmanager
def _compiled_when_asked() -> Iterator[None]:
    """Compile a graph's code when somebody asks for it, also after the context: most graphs are only walked."""
    from torch.fx import GraphModule

    compile_now: Any = GraphModule.recompile

    class Later:
        def __init__(self, name: str, module: Any) -> None:
            self.name, self.module = name, weakref.ref(module)

        def __get__(self, module: Any, owner: type) -> Any:
            delattr(owner, self.name)
            compile_now(self.module())
            return getattr(owner if module is None else module, self.name)

        def __getattr__(self, name: str) -> Any:  # of what recompile gives
            return getattr(compile_now(self.module()), name)

    def compile_later(self: Any) -> Later:
        of: Any = type(self)  # its own, no other module's
        if info := getattr(self.graph._codegen, "pytree_info", None):
            self._in_spec, self._out_spec = info.in_spec, info.out_spec
        self.__dict__.pop("_code", None)
        of.forward, of._code = Later("forward", self), Later("_code", self)
        of.__reduce__ = lambda self: (self._code, super(of, self).__reduce__())[1]  # it needs _code in __dict__
        self._recompile_submodules()
        return Later("", self)

    # The partitioner writes the whole graph for a log that nobody keeps, once for each delegate.
    with patch.object(GraphModule, "recompile", compile_later), patch.object(GraphModule, "__str__", object.__repr__):
        yield


def _merged_as_sets() -> contextlib.AbstractContextManager[Any]:
    """Let the partitioner, which compares each group of nodes with each other, not do it node by node."""
    from executorch.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner
    from torch.fx.passes.utils.fuser_utils import validate_partition

    def can_merge(self: Any, one: int, other: int, partitions: Any) -> bool:
        both = {*partitions[one].nodes, *partitions[other].nodes}
        users = {user for node in both for user in node.users} - both
        apart = all(self.dependency_viewer.downstreams_of(user).isdisjoint(both) for user in users)
        return apart and validate_partition(list(both))

    return patch.object(GroupBasedPartitioner, "_can_merge_partitions", can_merge)


@contextlib.contextmanager
def in_torch() -> Iterator[None]:
    """Let torch.export repeat less while the context is open. Imports torch."""
    with _operators_once(), _rare_cycles(), _origins_shared(), _compiled_when_asked():
        yield


def in_quantizing() -> contextlib.AbstractContextManager[Any]:
    """Let XNNPACK's quantizer look for batch normalization only where one is. Imports the exporter."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer_utils as utils

    look = utils._do_annotate_conv_bn

    def look_if_there(graph_module: Any, *args: Any, **options: Any) -> Any:
        if any("batch_norm" in str(node.target) for node in graph_module.graph.nodes):
            return look(graph_module, *args, **options)
        # What the quantizer does here besides.
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()
        return []

    return patch.object(utils, "_do_annotate_conv_bn", look_if_there)


@contextlib.contextmanager
def in_lowering() -> Iterator[None]:
    """Let XNNPACK's passes look only for what can be there while the context is open. Imports the exporter."""
    from executorch.backends.xnnpack._passes.convert_to_sdpa import ConvertToSDPAPass as Attention
    from executorch.backends.xnnpack._passes.convert_to_upsample_bilinear2d import ConvertToUpsampleBilinear2d as Resize
    from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa

    with (
        _written_once(),
        _merged_as_sets(),
        _graphs_that_have("upsample_bilinear2d", bilinear_2d, Resize, "get_graphs_dict", {}),
        _graphs_that_have("softmax", sdpa, Attention, "get_graphs", []),
    ):
        yield
