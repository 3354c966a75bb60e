"""Why torch.export could not take a model: the line of the model's own code, and a next step for known causes."""

from __future__ import annotations

import importlib.util
import linecache
import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
ANY = "what torch.export takes: https://docs.pytorch.org/docs/stable/export.html"

_KNOWN = (
    (
        r"GuardOnDataDependent|data-dependent",
        "numbers in a tensor decide what is computed or how large something is, and a program is fixed before",
        "torch.where(condition, a, b) instead of if; a mask instead of a slice or an index of unknown length",
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
)
"""Words of the exporter's message, what they mean, and what to do."""


def known(error: BaseException) -> tuple[str, str]:
    """The cause in words and the next step; of an unknown error no words and a general hint."""
    said = f"{type(error).__name__}: {error}"
    return next(((why, hint) for words, why, hint in _KNOWN if re.search(words, said)), ("", ANY))


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


def _foreign(file: str) -> bool:
    """Whether the file belongs to torch, to Python or to the exporter, not to a model."""
    path = Path(file)
    return not path.is_file() or path.parent == HERE or any(path.is_relative_to(one) for one in _FOREIGN)


def _folders() -> list[Path]:
    specs = [importlib.util.find_spec(name) for name in ("torchao", "executorch", "sympy")]
    folders = [Path(one) for spec in specs if spec for one in spec.submodule_search_locations or ()]
    # Python's own modules, but not what is installed below them.
    own = [one for one in Path(sysconfig.get_path("stdlib")).glob("*") if one.name != "site-packages"]
    return [Path(torch.__file__).parent, *folders, *own]


_FOREIGN = _folders()
