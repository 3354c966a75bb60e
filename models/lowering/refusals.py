"""Operators that XNNPACK's partitioner takes and its lowering refuses: found when a delegate fails, and left outside.

Upstream's partitioner decides by rules that know less than the lowering does (which ranks, which layouts, which
neighbours), so the lowering itself is asked: each operator of a failed delegate is lowered alone; where all of them can
be, the first one with which the delegate fails is sought. Imports torch and the exporter.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import patch

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec, remove_used_metadata, to_backend
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name
from executorch.exir.backend.utils import WhyNoPartition

from models.lowering import progress
from models.lowering.causes import reason, root
from models.lowering.graphs import exported_name, target_name
from models.lowering.progress import trace

_LOG = logging.getLogger("executorch.backends.slipway")
"""Below the loggers of upstream's partitioners: who listens to their reasons hears ours."""
_MACHINE = (MemoryError, OSError, ImportError)
"""Failures of this machine, which say nothing about an operator."""
_AROUND = ("quantize", "choose_qparams", "getitem")
"""Parts of names of operators that only serve another one."""
_LAYERS = (
    "addmm.default", "bmm.default", "convolution.default", "linear.default", "mm.default", "prelu.default",
    "_native_batch_norm_legit_no_training.default",
)  # fmt: skip
"""Operators whose constants XNNPACK packs."""
_DIMENSIONS = 6
"""XNN_MAX_TENSOR_DIMS of xnnpack.h: a value with more is refused when a device loads the program."""

Made = TypeVar("Made")


@dataclass
class _Failure:
    """A delegate that could not be lowered."""

    program: Any
    """Its graph as the partitioner chose it."""
    error: Exception
    partitioner: Any


@dataclass
class Refusals:
    """What is left outside of the delegates, and why.

    An operator is known by the one of the exported program that it comes from: names change from one lowering to the
    next when an operator outside is decomposed.
    """

    left: dict[str, str] = field(default_factory=dict)
    _failed: list[_Failure] = field(default_factory=list)
    _owner: Any = None
    """The partitioner that chose last, if it is XNNPACK's."""
    _only: Collection[str] | None = None
    """While a culprit is sought: all that may be delegated."""
    _apart: bool = False
    """While each operator is lowered alone."""

    def lower(self, lower: Callable[[], Made], partitioners: Sequence[Any]) -> Made:
        """``lower()``, repeated without the operators that it refuses, as long as there are new ones.

        Args:
            lower: begins anew at each call, with these partitioners.
        """
        with self._watching(partitioners):
            while True:
                self._failed = []
                try:
                    made = lower()
                    if not self._failed:
                        return made
                except Exception:
                    # A delegate that has failed is empty, which later steps need not take.
                    if not self._failed:
                        raise
                failed, known = self._failed, len(self.left)
                for one in failed:
                    self._owner = one.partitioner
                    try:
                        self._blame(one.program)
                    except Exception as error:  # noqa: BLE001  # the delegate's own error says more
                        trace(error)
                if len(self.left) == known:
                    raise failed[0].error

    @contextlib.contextmanager
    def _watching(self, partitioners: Sequence[Any]) -> Iterator[None]:
        """Keep delegates that fail, and let partitioners refuse what is in `left`, while the block runs."""
        copy, compile_ = XnnpackBackend.copy_exported_program_for_preprocess, XnnpackBackend.preprocess
        originals: dict[int, Any] = {}

        def copy_and_remember(program: Any, specs: Any) -> Any:
            copied = copy(program, specs)
            originals[id(copied)] = program
            return copied

        def preprocess(program: Any, specs: Any) -> Any:
            original = originals.pop(id(program), None)
            if self._apart and not _culprits(program, self._owner):
                return PreprocessResult(processed_bytes=b"")
            try:
                return compile_(program, specs)
            except Exception as error:
                if original is None or self._owner is None or isinstance(root(error), _MACHINE):
                    raise
                self._failed.append(_Failure(original, error, self._owner))
                return PreprocessResult(processed_bytes=b"")

        for one in partitioners:
            self._guard(one)
        with (
            patch.object(XnnpackBackend, "copy_exported_program_for_preprocess", copy_and_remember),
            patch.object(XnnpackBackend, "preprocess", staticmethod(preprocess)),
        ):
            yield

    def _guard(self, partitioner: Any) -> None:
        why = WhyNoPartition(logger=_LOG)
        choose, ours = partitioner.partition, isinstance(partitioner, XnnpackPartitioner)

        def partition(program: Any) -> Any:
            self._owner = partitioner if ours else None
            return choose(program)

        def checked(check: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
            def allowed(node: Any, program: Any) -> bool:
                origin = exported_name(node)
                if origin in self.left:
                    why(node, self.left[origin])
                    return False
                if deepest := _deeper_than_xnnpack(node):
                    why(node, f"a value has {deepest} dimensions, and XNNPACK takes at most {_DIMENSIONS}")
                    return False
                if shared := _reads_packed(node):
                    why(node, f"it reads {shared}, which a delegate packs for another operator alone")
                    return False
                return (self._only is None or origin in self._only) and check(node, program)

            return allowed

        partitioner.partition = partition
        for config in partitioner.target_partitioner_configs.values() if ours else ():
            config.check_constraints = checked(config.check_constraints)

    def _blame(self, program: Any) -> None:
        """Put into `left` what makes a delegate fail."""
        progress.at("looking for the operator that XNNPACK's lowering refuses")
        remove_used_metadata(program.graph)
        for failure in self._fails(program, apart=True):
            self._leave(_culprits(failure.program, self._owner), failure.error)
        while failures := self._fails(program):
            for every in (False, True):
                # Layers first: of two operators that cannot be together the other one is left outside.
                suspects = sorted(_culprits(program, self._owner, every=every), key=lambda one: not _is_layer(one))
                order = [one for one in dict.fromkeys(map(exported_name, suspects)) if one not in self.left]
                if order:
                    break
            good, bad = 0, len(order)
            while bad - good > 1:
                middle = (good + bad) // 2
                if found := self._fails(program, order[:middle]):
                    bad, failures = middle, found
                else:
                    good = middle
            if not order:
                return
            self._leave([one for one in suspects if exported_name(one) == order[bad - 1]], failures[0].error)

    def _leave(self, nodes: Sequence[Any], error: Exception) -> None:
        trace(error)
        names = ", ".join(sorted({target_name(one) for one in nodes}))
        for one in nodes:
            self.left.setdefault(exported_name(one), f"its lowering refuses {names}: {reason(error)}")

    def _fails(self, program: Any, only: Collection[str] | None = None, *, apart: bool = False) -> list[_Failure]:
        """The delegates of ``program`` that cannot be lowered.

        Args:
            only: operators that may be delegated; all others stay outside.
            apart: a delegate for each operator.
        """
        self._failed, self._only, self._apart = [], only, apart
        before, self._owner.per_op_mode = self._owner.per_op_mode, apart or self._owner.per_op_mode
        try:
            to_backend(MethodProgramsPartitionerSpec({"forward": program}, {"forward": self._owner}))
        except Exception:
            if not self._failed:
                raise
        finally:
            self._only, self._apart, self._owner.per_op_mode = None, False, before
        return self._failed


def _deeper_than_xnnpack(node: Any) -> int:
    """The most dimensions of what ``node`` reads and gives, if they are too many; else 0."""
    values = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    deepest = max((value.dim() for value in values if hasattr(value, "dim")), default=0)
    return deepest if deepest > _DIMENSIONS else 0


def _reads_packed(node: Any) -> str:
    """The constant that ``node`` reads and an operator before it, or a layer, reads in another way; empty: none.

    XNNPACK's delegate writes a layer's weights in the layer's layout, and frees them as soon as it has packed them. It
    writes a bias once, as whole numbers if the layer's input is quantized.
    """
    for given in map(_behind, node.all_input_nodes):
        if given.op not in ("placeholder", "get_attr"):
            continue
        uses = list(_uses(given))
        layers = [how for _, how in uses if how]
        if layers and any(how != layers[0] for reader, how in uses if reader is node):
            return str(given.target)
    return ""


def _behind(value: Any) -> Any:
    """What is dequantized, if ``value`` is."""
    while value.op == "call_function" and "dequantize" in value.target.__name__:
        value = value.all_input_nodes[0]
    return value


def _uses(value: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Who reads a value, also dequantized, and how: layers by their kind, argument and form; all others not at all."""
    for reader in value.users:
        if reader.op != "call_function":
            continue
        if "dequantize" in reader.target.__name__:
            yield from _uses(reader)
            continue
        name = format_target_name(reader.target.__name__)
        place = [index for index, given in enumerate(reader.args) if given is value]
        # A convolution's last three arguments: transposed, output padding, groups.
        form: tuple[Any, ...] = (reader.args[-3], reader.args[-1]) if name == "convolution.default" else ()
        if place == [2]:
            form += _scale(reader.args[0])  # in which a bias is written
        yield reader, ((name, *place, *form) if name in _LAYERS and place != [0] else ())


def _is_layer(node: Any) -> bool:
    return format_target_name(node.target.__name__) in _LAYERS


def _scale(value: Any) -> tuple[float, ...]:
    """The scale of what is dequantized, if the program has one."""
    dequantized = value.op == "call_function" and "dequantize" in value.target.__name__
    return tuple(one for one in value.args[1:2] if dequantized and isinstance(one, float))


def _culprits(program: Any, partitioner: Any, *, every: bool = False) -> list[Any]:
    """The operators for which the partitioner has a rule; those that only serve another one only if ``every``."""
    return [
        node
        for node in program.graph.nodes
        if node.op == "call_function"
        and format_target_name(node.target.__name__) in partitioner.target_partitioner_configs
        and (every or not any(part in node.target.__name__ for part in _AROUND))
    ]
