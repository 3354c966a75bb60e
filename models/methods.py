"""Several methods in one program: functions of one module that share its weights and its state. Imports torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from core.errors import ExportError


class Methods(dict[str, Any]):
    """Example inputs by the names of the module's methods: ``Methods(reset=(x,), add=(x,))``.

    The last one is what a deploy measures. Those before it run once each, in this order, in the same process: it finds
    what they leave in the module's buffers.
    """


def check(methods: Methods, module: Any, maker: str) -> None:
    """Refuse methods that the module does not have, or fewer than two.

    Raises:
        ExportError: says which.
    """
    missing = [name for name in methods if not callable(getattr(type(module), name, None))]
    if missing:
        raise ExportError(
            f"The module that {maker} returns has no method {', '.join(missing)}.",
            f"it is a {type(module).__name__}, and Methods(...) names its methods",
            f"def {missing[0]}(self, ...) in {type(module).__name__}",
            missing,
        )
    if len(methods) < 2:
        raise ExportError(
            f"{maker} returns Methods with fewer than two methods.",
            "a program of one method needs no Methods",
            "return (module, example_inputs)",
        )


def view(module: Any, name: str) -> Any:
    """The module with the method ``name`` as its forward; layers, weights and buffers are the same objects."""
    function: Callable[..., Any] = getattr(type(module), name)
    seen = copy.copy(module)
    kind = type(module)
    seen.__class__ = type(kind.__name__, (kind,), {"forward": function, "__module__": kind.__module__})
    return seen
