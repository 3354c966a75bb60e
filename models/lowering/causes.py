"""Why a model could not be exported or lowered: the line of its own code, and a next step for known causes."""

from __future__ import annotations

import importlib.util
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from core.paths import ROOT
from models.lowering.graphs import base_name, module_path, target_name
from models.users.users_code import last_lines
from models.zoo.schemes import CODE, HERE

_LONG = 300
"""Characters of the exporter's own words; the log has all of them."""
ANY = "what torch.export takes: https://docs.pytorch.org/docs/stable/export.html"

_DATA = """torch.where(condition, a, b) instead of if; a mask instead of a slice or an index of unknown length; \
a loop of a fixed number of turns instead of while"""
_CHANGES = """compute with a changed copy (weight * 0.5 instead of weight.mul_(0.5)); what has to stay from one \
execution to the next is a buffer: register_buffer, and buffer.copy_(new)"""
_RAISES = """its variant that returns a code instead: torch.linalg.inv_ex(x).inverse for torch.linalg.inv(x), \
cholesky_ex, solve_ex"""
_OPERATOR = """write it with torch's own operators, in the model or as its decomposition (torch.library.impl with \
CompositeImplicitAutograd)"""
_KNOWN = (
    (
        r"GuardOnDataDependent|data-dependent",
        "numbers in a tensor decide what is computed or how large something is, and a program is fixed before",
        _DATA,
    ),
    (
        r"\.numpy\(\) is not supported",
        "the model leaves PyTorch for NumPy, which a program cannot follow",
        "use torch's function of the same name, or do it before the model",
    ),
    (
        r"marked \S+ as dynamic but|specialized it to be a constant|Not all values of",
        "dynamic_shapes lets a size change that the model fixes",
        "leave that size out of dynamic_shapes, or narrow it as the message suggests",
    ),
    (
        r"FakeTensor\.__format__",
        "the model turns a tensor's numbers into text, and a program has no text",
        "leave the text out, or write it after the model has run",
    ),
    (
        r"in output, which is not a known type",
        "the model returns an object of a class that torch does not look into",
        "return tensors: a tuple, a list or a dictionary of them",
    ),
    (
        r"fake tensor in the exported program constant's list",
        "the model changes a parameter while it runs, or keeps a tensor that it has computed",
        _CHANGES,
    ),
    (
        r"'WithEffects' object has no attribute",
        "an operator that raises an error when it meets certain numbers cannot be lowered",
        _RAISES,
    ),
    (
        r"0 in strides is not supported",
        "a tensor repeats its numbers without a copy (expand), or is sparse: ExecuTorch has neither",
        "x.contiguous() after expand, of an example input, too; a dense tensor instead of a sparse one",
    ),
    (r"Missing out variants", "ExecuTorch has no kernel for an operator, and no partitioner takes it", _OPERATOR),
    (
        r"Unsupported control flow operator",
        "ExecuTorch has torch.cond, map and scan, and no while_loop",
        "a loop of a fixed number of turns, with torch.where(condition, new, old) for what is done",
    ),
    (r"per_op mode", "", "leave out per_op_mode"),
)
"""Words of the exporter's message, what they mean, and what to do. A test tries each advice."""


def known(error: BaseException, otherwise: str = ANY) -> tuple[str, str]:
    """The cause in words and the next step; of an unknown error no words and the hint ``otherwise``."""
    said = "\n".join(f"{type(one).__name__}: {one}" for one in _chain(error))
    return next(((why, hint) for words, why, hint in _KNOWN if re.search(words, said)), ("", otherwise))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, the outermost first."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__


def _suggested(error: BaseException) -> str:
    """``Suggested fixes: h = 2*_h``, if the message has them."""
    match = re.search(r"Suggested fixes:\n((?:  .*\n)+)", f"{error}\n")
    return f" Suggested fixes: {'; '.join(line.strip() for line in match[1].splitlines())}" if match else ""


def root(error: BaseException) -> BaseException:
    """The innermost error that says more than those around it: a pass's own only names the pass."""
    found = error
    for one in _chain(error):
        found = one if str(one) and str(one) not in str(found) else found
    return found


def reason(error: BaseException) -> str:
    """The root of an error in one line."""
    found = root(error)
    return f"{type(found).__name__}: {last_lines(found).splitlines()[0]}"


def explained(error: BaseException, module: Any = None, program: Any = None, otherwise: str = ANY) -> tuple[str, str]:
    """The cause of a failure of the exporter: in words, the line of the model, the exporter's own line; the next step.

    Args:
        module: the model, if its own code ran when it failed.
        program: the exported program, if it was that which failed.
    """
    why, hint = known(error, otherwise)
    line = place(error, module) if module is not None else ""
    line = line or place_in(error, program)
    error = root(error)
    said = last_lines(error)
    # What stands above says it already, or begins the exporter's own explanation of itself.
    said = said.splitlines()[0] if why or line else said
    said = (said if len(said) <= _LONG else said[:_LONG].rstrip() + " …") + _suggested(error)
    return "\n".join(one for one in (why, line, f"{type(error).__name__}: {said}") if one), hint


def place(error: BaseException, module: Any) -> str:
    """``net.py, line 12, in forward of encoder.layers.3: x.item()``: the last line of the model's code; or empty."""
    names = {id(one): name for name, one in module.named_modules()}
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not _foreign(file):
            code = linecache.getline(file, line).strip()
            name = names.get(id(frame.f_locals.get("self")), "")
            of = f" of {name}" if name else ""
            found = f"{file}, line {line}, in {frame.f_code.co_name}{of}: {code}"
    return found


def place_in(error: BaseException, program: Any = None) -> str:
    """``aten::inverse, made by net.py, line 12, in forward of encoder: x.inverse()``; empty if no operator is named.

    The operator is the one that the exporter worked on when it failed, or one of ``program`` that its message names.
    """
    for node in (*_at_work(error), *(_named(error, program) if program is not None else ())):
        if line := origin(node):
            return f"{target_name(node)}, made by {line}"
    return ""


def _at_work(error: BaseException) -> Iterator[Any]:
    """Operators that functions of the exporter held when it failed, the innermost function's first."""
    seen: BaseException | None = error
    while seen is not None:
        for frame, _ in reversed(list(traceback.walk_tb(seen.__traceback__))):
            for name in ("node", "n", "self"):
                value = frame.f_locals.get(name)
                value = getattr(value, "node", None) if name == "self" else value
                if isinstance(value, torch.fx.Node) and value.op == "call_function":
                    yield value
        seen = seen.__cause__ or seen.__context__


def _named(error: BaseException, program: Any) -> Iterator[Any]:
    """Operators whose names the message has."""
    said = str(error)
    for node in program.graph.nodes:
        if node.op == "call_function" and "::" in target_name(node):
            name = base_name(target_name(node))
            if re.search(rf"(?<![\w:]){re.escape(name)}(?!\w)", said) or re.search(rf"%{re.escape(node.name)}\b", said):
                yield node


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def origin(node: Any) -> str:
    """``net.py, line 12, in forward of encoder.layers.3: x.inverse()``: where the model made an operator; or empty."""
    for match in reversed(list(_FRAME.finditer(str(node.meta.get("stack_trace") or "")))):
        file, line = match["file"], int(match["line"])
        if not _foreign(file):
            path = module_path(node)
            of = f" of {path}" if path else ""
            return f"{file}, line {line}, in {match['function']}{of}: {linecache.getline(file, line).strip()}"
    return ""


def _foreign(file: str) -> bool:
    """Whether the file belongs to torch, to Python or to the exporter, not to a model."""
    path = Path(file)
    return not path.is_file() or path.parent in _OURS or any(path.is_relative_to(one) for one in _FOREIGN)


def _folders() -> list[Path]:
    specs = [importlib.util.find_spec(name) for name in ("torchao", "executorch", "sympy")]
    folders = [Path(one) for spec in specs if spec for one in spec.submodule_search_locations or ()]
    # Python's own modules, but not what is installed below them.
    own = [one for one in Path(sysconfig.get_path("stdlib")).glob("*") if one.name != "site-packages"]
    return [Path(torch.__file__).parent, *folders, *own, ROOT / "core"]


_OURS = {HERE / folder for folder in CODE}
_FOREIGN = _folders()
