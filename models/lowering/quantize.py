"""Apply a scheme to a model; the result is an exported program. Imports torch and the exporter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from core.errors import ExportError, SlipwayError
from models.loading import Prepared
from models.lowering import causes, graphs, progress, shortcuts
from models.lowering.graphs import is_dequantize, module_path, weight_argument
from models.request.options import Options
from models.request.partitioners import kind_of
from models.users.users_code import made
from models.zoo.schemes import Scheme


@dataclass(frozen=True)
class Quantized:
    """A model in a scheme."""

    program: Any
    """``torch.export.ExportedProgram``."""
    inputs: tuple[Any, ...]
    """Example inputs, of the scheme's types."""
    scheme: Scheme | None = None
    """What it is in, if the user has quantized it."""


def explained(doing: str, log_hint: str, run: Callable[[], Any], module: Any = None) -> Any:
    """``run()``, whose failure becomes an `ExportError` with the user's line and the exporter's own message."""
    try:
        return run()
    except SlipwayError:
        raise
    except Exception as error:
        cause, hint = causes.explained(error, module, otherwise=log_hint)
        raise ExportError(f"{doing} failed.", cause, hint) from error


def capture(module: Any, inputs: Sequence[Any], dynamic_shapes: Any, strict: bool = False) -> Any:
    """``torch.export`` of ``module``.

    Raises:
        ExportError: torch.export cannot take it.
    """

    def run() -> Any:
        # With gradients on, a buffer that changes cannot be exported.
        with torch.no_grad():
            return torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic_shapes, strict=strict)

    return explained("torch.export of the model", causes.ANY, run, module)


def _half(model: Prepared) -> Quantized:
    """Parameters, inputs and outputs as float16; integer inputs stay."""
    inputs = tuple(x.half() if x.is_floating_point() else x for x in model.inputs)
    return Quantized(capture(model.module.half(), inputs, model.dynamic_shapes, model.strict), inputs)


def _state_after(model: Prepared) -> dict[str, Any]:
    """Buffers as the methods before this one leave them: what its calibration begins with; none for the only one."""
    if not model.before:
        return {}
    with torch.no_grad(), graphs.unchanged(model.module):
        for one in model.before:
            one.module(*(each.clone() for each in one.inputs))
        return {name: one.detach().clone() for name, one in model.module.named_buffers()}


def _unshare(graph: Any) -> None:
    """Give each layer parameters of its own.

    Of layers that share a weight, the quantizer quantizes the first alone. Of those that share a bias, XNNPACK's
    delegate writes it once, in the first layer's scale.
    """
    parameters = dict(graph.named_parameters())
    for layer in [node for node in graph.graph.nodes if weight_argument(node) is not None]:
        for given in layer.all_input_nodes:
            if given.op == "get_attr" and given.target in parameters and len(given.users) > 1:
                name = f"{given.target}_of_{layer.name}"
                owner, _, last = name.rpartition(".")
                copy = nn.Parameter(parameters[given.target].detach().clone(), requires_grad=False)
                graph.get_submodule(owner).register_parameter(last, copy)
                with graph.graph.inserting_before(layer):
                    own = graph.graph.get_attr(name)
                own.meta = dict(given.meta)
                layer.replace_input_with(given, own)
    graph.recompile()


def _pt2e(module: Any, model: Prepared, samples: Sequence[tuple[Any, ...]], quantizer: Any) -> Any:
    """PT2E quantization: export, put observers, calibrate, convert, export again."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    shapes = model.dynamic_shapes
    # Without checks of the inputs: those are a module that other quantizers' passes do not take.
    graph = capture(module, model.inputs, shapes, model.strict).module(check_guards=False)
    _unshare(graph)
    own = {name: one.detach().clone() for name, one in graph.named_buffers()}
    found = _state_after(model)
    with shortcuts.in_quantizing():
        prepared = prepare_pt2e(graph, quantizer)
    with torch.no_grad():
        for name, one in prepared.named_buffers():
            if name in found:
                one.copy_(found[name])
        for number, sample in enumerate(samples, 1):
            progress.at(f"calibrating with sample {number} of {len(samples)}")
            prepared(*sample)
        if len(samples) == 1 and graphs.changed(prepared, own):
            for _ in range(graphs.EXECUTIONS - 1):
                prepared(*samples[0])  # a state reaches its range with time
        # Calibration must not leave a state behind.
        for name, one in prepared.named_buffers():
            if name in own:
                one.copy_(own[name])
    return capture(convert_pt2e(prepared), model.inputs, shapes)


def _whole(node: Any) -> bool:
    """Whether the node's value is of whole numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_floating_point()


def _xnnpack_quantizer(chosen: Callable[[Any], bool], *, dynamic: bool = False) -> Any:
    """Upstream's quantizer for XNNPACK, of the nodes that are ``chosen``; it leaves whole numbers as they are."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as upstream

    class Quantizer(upstream.XNNPACKQuantizer):  # type: ignore[misc]  # the exporter's types are not read here
        def transform_for_annotation(self, model: Any) -> Any:
            """Upstream's, which makes a float32 tensor of each number that is added: tokens would become float."""
            whole = {node: node.args for node in model.graph.nodes if _whole(node)}
            model = super().transform_for_annotation(model)
            for node, args in whole.items():
                node.args = args
            for node in reversed(model.graph.nodes):
                if node.op == "get_attr" and not node.users:
                    model.graph.erase_node(node)
            model.recompile()
            return model

    config = upstream.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
    return Quantizer().set_global(config).set_filter_function(lambda node: not _whole(node) and chosen(node))


def _static(model: Prepared, options: Options) -> Quantized:
    """int8 activations with scales from calibration, int8 weights per channel."""
    if options.quantizer:
        from torchao.quantization.pt2e.quantizer import Quantizer

        quantizer = made(options.quantizer, Quantizer, "quantizer")
    else:
        quantizer = _xnnpack_quantizer(lambda node: kind_of(options.layers, module_path(node)) != "float")
    samples = model.calibration or (model.inputs,)
    program = explained(
        "Static quantization", "./inv export --scheme fp32 shows whether the model exports at all",
        lambda: _pt2e(model.module, model, samples, quantizer), model.module,
    )  # fmt: skip
    return Quantized(program, model.inputs)


def _dynamic_convolutions(module: Any, model: Prepared) -> Any:
    """Quantize the convolutions dynamically (torchao has linear layers only), then export."""

    def is_convolution(node: Any) -> bool:
        # The quantizer also passes weights and biases here, which are not calls.
        return node.op != "call_function" or "aten::conv" in getattr(getattr(node.target, "_schema", None), "name", "")

    return _pt2e(module, model, [model.inputs], _xnnpack_quantizer(is_convolution, dynamic=True))


def _opened(module: Any, layers: Sequence[str]) -> Any:
    """Make layers that the quantizers know of those that they do not.

    The products in torch's LSTMs, which are one operator each, become linear layers: those with inputs one for all
    steps, which reads its weights once. Convolutions over a line become such over a picture of one row.
    """
    from torch.ao.nn.quantizable import LSTM
    from torch.ao.nn.quantizable.modules.rnn import _LSTMSingleLayer

    class Open(LSTM):  # type: ignore[misc]  # torch's types are not read here
        def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002  # as nn.LSTM calls them
            if input.dim() == 3:
                return super().forward(input, hx)
            batch = 0 if self.batch_first else 1
            found, state = super().forward(input.unsqueeze(batch), hx and [one.unsqueeze(1) for one in hx])
            return found.squeeze(batch), tuple(one.squeeze(1) for one in state)

    class Ahead(_LSTMSingleLayer):  # type: ignore[misc]
        def forward(self, x: Any, hidden: Any = None) -> Any:
            return super().forward(self.igates(x), hidden)

    class Row(nn.Conv1d):  # type: ignore[misc]
        def forward(self, input: Any) -> Any:  # noqa: A002  # as nn.Conv1d calls it
            padding = self.padding if isinstance(self.padding, str) else (0, *self.padding)
            sizes = ((1, *self.stride), padding, (1, *self.dilation))
            return nn.functional.conv2d(input.unsqueeze(-2), self.weight, self.bias, *sizes).squeeze(-2)

    def of(layer: Any) -> Any:
        if isinstance(layer, nn.LSTM) and not layer.proj_size:
            layer.qconfig = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nothing observes it
                opened = Open.from_float(layer.eval())
            for one in [part for part in opened.modules() if isinstance(part, _LSTMSingleLayer)]:
                one.__class__, one.igates, one.cell.igates = Ahead, one.cell.igates, nn.Identity()
            return opened
        plain = type(layer) is nn.Conv1d and layer.groups == 1 and layer.padding_mode == "zeros"
        if plain and isinstance(layer.weight, nn.Parameter):  # not made anew by a hook, as weight_norm's is
            layer.__class__, layer.weight = Row, nn.Parameter(layer.weight.unsqueeze(-2))
        return layer

    for name, layer in list(module.named_modules()):
        made = of(layer) if kind_of(layers, name) != "float" else layer
        if not name:
            module = made
        elif made is not layer:
            module.set_submodule(name, made)
    return module


def _dynamic(model: Prepared, scheme: Scheme, options: Options, again: bool) -> Quantized:
    """int8 activations with a scale per row found at run time; linear weights int8 per channel or int4 blockwise."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    # Unwrapping reaches children only: a model that is itself a layer becomes one. The argument's name stays.
    module = nn.Sequential(model.module) if isinstance(model.module, nn.Linear) else model.module
    module = _opened(module, options.layers)
    usual = f"int{scheme.weight_bits}"

    def quantize(kind: str) -> None:
        """Quantize the layers of one kind."""
        # Blocks are for four bits: weights in eight have a scale for each output channel, as XNNPACK takes them.
        group = scheme.group if kind == "int4" else 0
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4 if kind == "int4" else torch.int8,
            weight_granularity=PerGroup(group) if group else PerAxis(0),
        )

        def fits(layer: Any, name: str) -> bool:
            # Attention takes this one's weight without calling it: quantized, it would leave the delegate.
            if not isinstance(layer, nn.Linear) or isinstance(layer, NonDynamicallyQuantizableLinear):
                return False
            if (kind_of(options.layers, name) or usual) != kind:
                return False
            return not group or layer.in_features % group == 0

        quantize_(module, config, fits)

    def run() -> Any:
        if not again:
            for kind in ("int8", "int4"):
                quantize(kind)
            unwrap_tensor_subclass(module)
        convolutions = any(isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for layer in module.modules())
        if convolutions and not scheme.group:
            return _dynamic_convolutions(module, model)
        return capture(module, model.inputs, model.dynamic_shapes, model.strict)

    hint = "./inv export --scheme fp32 shows whether the model exports at all"
    return Quantized(explained("Dynamic quantization", hint, run, module), model.inputs)


def _by_owner(module: Any) -> bool:
    """Whether the user has quantized the module: its graph quantizes, or weights have torchao's types."""
    nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
    weights = (type(one.data) for one in module.parameters())
    return any(is_dequantize(node) for node in nodes) or any(kind is not torch.Tensor for kind in weights)


def _refuse_prepared(module: Any) -> None:
    """Refuse a model that still observes its numbers, which no runtime has a kernel for.

    Raises:
        ExportError: it has modules of torchao's, or of older torch's, that do so.
    """
    for name, one in module.named_modules():
        if hasattr(one, "calculate_qparams"):
            raise ExportError(
                "The model is prepared for quantization, but not quantized.",
                f"its {name} is a {type(one).__name__}, which only observes numbers",
                "return convert_pt2e(model)",
                [name],
            )


def _own_scheme(program: Any) -> Scheme:
    """What the user's own quantization is, for tolerances: static as far as no scale is found at run time."""
    dynamic = any("choose_qparams" in str(node.target) for node in program.graph.nodes)
    return Scheme(
        name="own",
        activations="the user's",
        weights="the user's",
        method="torchao" if dynamic else "pt2e",
        weight_bits=8,
    )


def _as_it_is(model: Prepared) -> Quantized:
    """The model without a change; a scheme only if its owner has quantized it."""
    owner = _by_owner(model.module)
    if owner:
        from torchao.utils import unwrap_tensor_subclass

        unwrap_tensor_subclass(model.module)
    program = capture(model.module, model.inputs, model.dynamic_shapes, model.strict)
    return Quantized(program, model.inputs, scheme=_own_scheme(program) if owner else None)


def apply(model: Prepared, scheme: Scheme, options: Options, *, again: bool = False) -> Quantized:
    """Represent ``model`` as ``scheme`` says and export it. The module itself may be changed by this.

    Args:
        again: another method of the same module was quantized so before: its weights are in the scheme already.

    Raises:
        ExportError: torch.export or the quantizer cannot take it, or it is quantized already or half.
    """
    _refuse_prepared(model.module)
    if scheme.method == "none":
        return _as_it_is(model)
    if not again and _by_owner(model.module):
        raise ExportError(
            f"The model is quantized already, so {scheme.name} cannot be applied to it.",
            "its function returns what convert_pt2e or quantize_ has made",
            "--scheme fp32, which leaves it as it is",
        )
    if scheme.method == "half":
        return _half(model)
    return _static(model, options) if scheme.method == "pt2e" else _dynamic(model, scheme, options, again)
