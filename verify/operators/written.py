"""Programs written call by call with upstream's own serializer: for kernels that exports here do not call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from executorch.exir import schema
from executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from executorch.exir.tensor import scalar_type_enum


@dataclass(frozen=True)
class Out:
    """A tensor that a kernel writes, or one that it grows up to this size."""

    result: torch.Tensor
    bounded: bool = False


@dataclass(frozen=True)
class Constant:
    """A tensor of the program's own."""

    value: torch.Tensor


@dataclass(frozen=True)
class Number:
    """A number that a kernel gives."""

    result: int | float | bool


@dataclass
class Writer:
    """One method, grown call by call. Tensors that are given become inputs, what is asked for becomes outputs."""

    values: list[Any] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)
    inputs: list[torch.Tensor] = field(default_factory=list)
    results: list[torch.Tensor] = field(default_factory=list)
    _given: list[int] = field(default_factory=list)
    _outputs: list[int] = field(default_factory=list)
    _used: int = 0
    _constants: list[bytes] = field(default_factory=lambda: [b""])

    def _put(self, value: Any) -> int:
        self.values.append(schema.EValue(value))
        return len(self.values) - 1

    def tensor(self, like: torch.Tensor, *, bounded: bool = False) -> int:
        """Room for a tensor of that shape and type, 16 bytes apart from the next."""
        size = max(like.numel() * like.element_size(), 1)
        allocation = schema.AllocationDetails(1, self._used, 0)
        self._used += -(-size // 16) * 16
        return self._tensor(like, 0, allocation, bounded=bounded)

    def _tensor(self, like: torch.Tensor, buffer: int, allocation: Any, *, bounded: bool = False) -> int:
        kind, order, sizes = scalar_type_enum(like.dtype), list(range(like.dim())), schema.TensorShapeDynamism
        sized = sizes.DYNAMIC_BOUND if bounded else sizes.STATIC
        return self._put(schema.Tensor(kind, 0, list(like.shape), order, False, 0, buffer, allocation, sized))

    def _output(self, index: int, result: torch.Tensor) -> int:
        self.results.append(result)
        self._outputs.append(index)
        return index

    def _plain(self, value: Any) -> Any:
        """Numbers and lists as the file has them; a list of numbers refers to numbers among the values."""
        if value is None:
            return schema.Null()
        for kind, stored in ((bool, schema.Bool), (int, schema.Int), (float, schema.Double)):
            if isinstance(value, kind):
                return stored(value)
        if isinstance(value, str):
            return schema.String(value)
        items = [self._argument(one) for one in value]
        return (schema.IntList if all(isinstance(one, int) for one in value) else schema.OptionalTensorList)(items)

    def _argument(self, value: Any) -> int:
        if isinstance(value, ValueRef):
            return value.index
        if isinstance(value, torch.Tensor):
            return self.given(value).index
        if isinstance(value, Constant):
            self._constants.append(value.value.contiguous().numpy().tobytes())
            return self._tensor(value.value, len(self._constants) - 1, None)
        if isinstance(value, Out):
            return self._output(self.tensor(value.result, bounded=value.bounded), value.result)
        if isinstance(value, Number):
            wide = torch.float64 if isinstance(value.result, float) else None
            return self._output(self._put(schema.Int(0)), torch.tensor(value.result, dtype=wide))
        return self._put(self._plain(value))

    def call(self, kernel: str, *arguments: Any) -> None:
        """One kernel, by its registered name. ``int`` arguments in ``[]`` are a list of integers."""
        if kernel not in self.operators:
            self.operators.append(kernel)
        indices = [self._argument(one) for one in arguments]
        self.instructions.append(schema.Instruction(schema.KernelCall(self.operators.index(kernel), indices)))

    def returned(self, value: ValueRef, result: torch.Tensor) -> None:
        """Give a value of the method as an output, too."""
        self._output(value.index, result)

    def given(self, value: torch.Tensor, *, bounded: bool = False) -> ValueRef:
        """An input, to be used in several calls."""
        self.inputs.append(value)
        self._given.append(self.tensor(value, bounded=bounded))
        return ValueRef(self._given[-1])

    def program(self) -> bytes:
        """The file."""
        plan = schema.ExecutionPlan(
            name="forward", container_meta_type=schema.ContainerMetadata("", ""), values=self.values,
            inputs=self._given, outputs=self._outputs,
            chains=[schema.Chain([], [], self.instructions, None)],
            operators=[schema.Operator(*name.partition(".")[::2]) for name in self.operators],
            delegates=[], non_const_buffer_sizes=[0, max(self._used, 16)],
        )  # fmt: skip
        buffers = [schema.Buffer(one) for one in self._constants]
        written = schema.Program(0, [plan], buffers, [], [], schema.SubsegmentOffsets(0, []))
        return bytes(serialize_pte_binary(PTEFile(program=written, mutable_data=None, named_data=None)))


@dataclass(frozen=True)
class ValueRef:
    """Where a value of the method is."""

    index: int


def numbers() -> Writer:
    """Arithmetic on sizes."""
    writer = Writer()
    pairs: Sequence[tuple[Any, Any]] = ((7, 3), (-7, 3), (7, -3), (2.5, 2), (-4, 0.5))
    for a, b in pairs:
        # With a float among them all results but comparisons are floats, in the runtime if not in Python.
        kind = float if isinstance(a, float) or isinstance(b, float) else int
        for name, result in (
            ("add.Scalar", a + b), ("sub.Scalar", a - b), ("mul.Scalar", a * b), ("truediv.Scalar", a / b),
            ("eq.Scalar", a == b), ("ge.Scalar", a >= b), ("gt.Scalar", a > b), ("le.Scalar", a <= b),
            ("lt.Scalar", a < b), ("sym_max.Scalar", kind(max(a, b))), ("sym_min.Scalar", kind(min(a, b))),
        ):  # fmt: skip
            writer.call(f"executorch_prim::{name}", a, b, Number(result))
    for a, b in ((7, 3), (-7, 3), (7, -3), (-6, 3), (6, -1)):
        for name in ("floordiv.Scalar", "floordiv.int"):
            writer.call(f"executorch_prim::{name}", a, b, Number(a // b))
        for name in ("mod.Scalar", "mod.int"):
            writer.call(f"executorch_prim::{name}", a, b, Number(a % b))
    for x, up, down, near in ((2.5, 3, 2, 2), (-2.5, -2, -2, -2), (3.5, 4, 3, 4), (-0.2, 0, 0, 0)):
        for name, whole in (("ceil", up), ("trunc", down), ("sym_int", down), ("round", near)):
            writer.call(f"executorch_prim::{name}.Scalar", x, Number(whole))
    writer.call("executorch_prim::neg.Scalar", 5, Number(-5))
    writer.call("executorch_prim::neg.Scalar", -2.5, Number(2.5))
    writer.call("executorch_prim::sym_float.Scalar", 5, Number(5.0))
    writer.call("executorch_prim::sym_not.Scalar", True, Number(False))
    writer.call("executorch_prim::sym_ite.Scalar", True, 4, 5, Number(4))
    writer.call("executorch_prim::sym_ite.Scalar", False, 4, 5, Number(5))
    table = writer.given(torch.zeros(3, 5))
    writer.call("aten::sym_size.int", table, -1, Number(5))
    writer.call("aten::sym_numel", table, Number(15))
    writer.call("aten::_local_scalar_dense", torch.tensor([2.5]), Number(2.5))
    writer.call("aten::_local_scalar_dense", torch.tensor(True), Number(True))
    return writer


def calls() -> Writer:
    """Kernels on tensors: in place, copies that exporting removes, and those that only other passes create."""
    writer = Writer()
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for name in ("alias_copy", "detach_copy", "lift_fresh_copy"):
        writer.call(f"aten::{name}.out", x, Out(x))
    writer.call("aten::clone.out", x, None, Out(x))
    writer.call("aten::_to_copy.out", x, False, None, Out(x.half()))
    writer.call("llama::fallback.out", x, Out(x))
    odd = 2**53 + 1  # float64 has its neighbours only
    writer.call("aten::full.out", [3], odd, Out(torch.full((3,), odd)))
    writer.call("aten::constant_pad_nd.out", torch.tensor([7]), [1, 0], odd, Out(torch.tensor([odd, 7])))
    terms = torch.tensor([1]), torch.tensor([[2]]), torch.tensor([[3]])
    writer.call("aten::addmm.out", *terms, odd, 0, Out(torch.tensor([[odd]])))
    writer.call("aten::addmm.out", *terms, 0, odd, Out(torch.tensor([[6 * odd]])))
    for name in ("_d2h_copy", "_h2d_copy"):
        writer.call(f"et_copy::{name}.out", x, Out(x))
    target = writer.given(x)
    writer.call("aten::copy_", target, y[:1].contiguous(), False, target)
    writer.returned(target, y[:1].expand(3, 4))
    target = writer.given(x)
    writer.call("aten::index_put_", target, [torch.tensor([2, 0])], y[:2].contiguous(), True, target)
    writer.returned(target, x.index_put((torch.tensor([2, 0]),), y[:2], accumulate=True))
    writer.call("aten::arange.out", 5, Out(torch.arange(5.0)))
    writer.call("aten::ones.out", [2, 3], Out(torch.ones(2, 3)))
    writer.call("aten::zeros.out", [2, 3], Out(torch.zeros(2, 3)))
    writer.call("aten::fill.Scalar_out", x, 2.5, Out(torch.full((3, 4), 2.5)))
    writer.call("executorch_prim::et_view.default", x, [4, -1], Out(x.reshape(4, 3)))
    writer.call("aten::squeeze_copy.dim_out", x[:, None].contiguous(), 1, Out(x))
    writer.call("aten::slice_copy.Tensor_out", x, 0, 0, 3, 2**63 - 1, Out(x[:1].contiguous()))
    large, ones = 2**53 + 1, torch.ones(1, dtype=torch.int64)
    kept = Out(torch.tensor([1, large, 1]))
    writer.call("aten::scatter.value_out", torch.ones(3, dtype=torch.int64), 0, ones, large, kept)
    rows = writer.given(torch.zeros(4, 2))
    for index in range(4):
        writer.call("executorch_prim::et_copy_index.tensor", rows, torch.full((2,), float(index)), index)
    writer.returned(rows, torch.arange(4.0)[:, None].expand(4, 2))
    _quantized(writer)
    _training(writer)
    return writer


def chance() -> Writer:
    """Random numbers, and memory that nobody has written to: only shapes and distributions can be looked at."""
    writer = Writer()
    writer.call("aten::rand.out", [100, 40], Out(torch.zeros(100, 40)))
    writer.call("aten::randn.out", [100, 40], Out(torch.zeros(100, 40)))
    many = torch.ones(100, 40)
    writer.call("aten::native_dropout.out", many, 0.25, True, Out(many), Out(many.bool()))
    writer.call("aten::native_dropout.out", many, 0.25, False, Out(many), Out(many.bool()))
    writer.call("aten::empty.out", [2, 3], None, Out(torch.zeros(2, 3)))
    writer.call("dim_order_ops::_empty_dim_order.out", [2, 3], None, Out(torch.zeros(2, 3)))
    return writer


def _quantized(writer: Writer) -> None:
    a, b = torch.randint(-128, 128, (3, 1), dtype=torch.int8), torch.randint(-128, 128, (3, 4), dtype=torch.int8)
    total = (a.float() - 2) * 0.5 + (b.float() + 1) * 0.25
    coded = (torch.round(total / 0.75) + 3).clamp(-128, 127).to(torch.int8)
    edges = (-128, 127)
    writer.call("quantized_decomposed::add.out", a, 0.5, 2, *edges, b, 0.25, -1, *edges, 0.75, 3, *edges, Out(coded))
    x, weight, scales = torch.randn(2, 3), torch.randint(-9, 9, (3, 4), dtype=torch.int8), torch.rand(3)
    real = weight.float() * scales[:, None]
    writer.call("quantized_decomposed::mixed_mm.out", x, weight, scales, None, Out(x @ real))
    x = torch.randn(2, 4)
    writer.call("quantized_decomposed::mixed_linear.out", x, weight, scales, None, None, Out(x @ real.T))
    groups = torch.rand(3, 2)
    real = weight.float() * groups.repeat_interleave(2, 1)
    writer.call("quantized_decomposed::mixed_linear.out", x, weight, groups, None, None, Out(x @ real.T))

    # Scales that lie a column at a time.
    table, rows = torch.randint(-9, 9, (3, 4), dtype=torch.int8), torch.tensor([2, 0])
    scales = writer.given(torch.rand(3, 2))
    writer.values[scales.index].val.dim_order = [1, 0]
    real = table.float() * writer.inputs[-1].repeat_interleave(2, 1)
    writer.call("quantized_decomposed::embedding_byte.out", table, scales, None, *edges, rows, Out(real[rows]))


def _training(writer: Writer) -> None:
    """Batch norm that follows its batch, and one that does not."""
    x, weight, bias = torch.randn(4, 3, 5), torch.rand(3), torch.randn(3)
    mean, variance = torch.randn(3), torch.rand(3) + 0.5
    for training in (True, False):
        followed, spread = mean.clone(), variance.clone()
        found = torch.ops.aten.native_batch_norm.default(x, weight, bias, followed, spread, training, 0.1, 1e-3)
        running = writer.given(mean), writer.given(variance)
        saved = [Out(one) for one in found[1:]] if training else [Out(torch.zeros(0)), Out(torch.zeros(0))]
        writer.call(
            "aten::_native_batch_norm_legit.out", x, weight, bias, *running, training, 0.1, 1e-3, Out(found[0]), *saved
        )
        writer.returned(running[0], followed)
        writer.returned(running[1], spread)
