"""What a module lists, read without importing it: modules that make programs import torch, which takes seconds."""

from __future__ import annotations

import ast
from typing import Any

from core.paths import ROOT


def named(module: str, table: str) -> list[str]:
    """The keys of the dictionary, or the items of the tuple, that a module assigns to ``table``."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    assigned: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            assigned[ast.unparse(target)] = node.value
    found = assigned[table]
    items: list[Any] = found.keys if isinstance(found, ast.Dict) else found.elts
    return [str(ast.literal_eval(one)) for one in items]
