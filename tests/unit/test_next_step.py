"""Every foreseen error says what to do next."""

from __future__ import annotations

import ast

from core import errors
from core.paths import ROOT
from verify.house import module_of, modules

KINDS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}


def _without(source: str) -> list[int]:
    """Lines where an error is made without a hint, or with an empty one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS):
            continue
        if any(isinstance(each, ast.Starred) for each in node.args):
            continue
        hints = [*node.args[2:3], *(word.value for word in node.keywords if word.arg == "hint")]
        if not hints or (isinstance(hints[0], ast.Constant) and not hints[0].value):
            found.append(node.lineno)
    return found


def test_no_error_is_made_without_a_next_step() -> None:
    source = (
        'RunError("a", "b")\nRunError("a", "b", "")\nRunError("a", "b", "c")\nRunError("a", hint="c")\nRunError(*all)'
    )
    assert _without(source) == [1, 2]
    ours = {name: file for name, file in modules().items() if not name.startswith("tests")}
    lacking = {name: lines for name, file in ours.items() if (lines := _without(file.read_text(encoding="utf-8")))}
    assert lacking == {}
    assert module_of(ROOT / "deploy/run/npy.py") in ours
