"""The part of a user's file that one of its functions depends on. Without torch, and without running the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core.files import sha256_bytes, sha256_file

if TYPE_CHECKING:
    from typing import TypeGuard

# A file that uses one of these can reach any of its definitions by a name that is computed.
_FUNCTIONS = frozenset(["eval", "exec", "globals", "locals", "vars"])
_ATTRIBUTES = frozenset(["__dict__", "__subclasses__"])


def digest(file: Path, function: str) -> str:
    """SHA-256 of the statements of ``file`` that ``function`` depends on, without comments and blank lines.

    Functions and classes that it does not mention, directly or through others, are left out; every other statement
    of the top level counts, because importing the file runs it. The whole file counts when it is not Python or
    reaches its definitions by computed names.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return sha256_file(file)
    optional = {node.name: node for node in tree.body if _is_optional(node)}
    twice = sum(map(_is_optional, tree.body)) != len(optional)
    if twice or any(map(_by_name, ast.walk(tree))):
        return sha256_bytes(ast.dump(tree).encode())
    reached: set[str] = set()
    pending = [function, *(word for node in tree.body if not _is_optional(node) for word in _words(node))]
    while pending:
        name = pending.pop()
        if name in optional and name not in reached:
            reached.add(name)
            pending += _words(optional[name])
    kept = [node for node in tree.body if not _is_optional(node) or node.name in reached]
    return sha256_bytes("\n".join(map(ast.dump, kept)).encode())


def _is_optional(node: ast.stmt) -> TypeGuard[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Whether the statement only binds a name: a decorator or a metaclass might do more."""
    if isinstance(node, ast.ClassDef):
        return not node.decorator_list and not node.keywords
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list


def _by_name(node: ast.AST) -> bool:
    """Whether the node can reach definitions by computed names."""
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS
    if isinstance(node, ast.Attribute):
        modules = node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys"
        return modules or node.attr in _ATTRIBUTES
    return isinstance(node, ast.FunctionDef) and node.name == "__init_subclass__"


def _words(node: ast.AST) -> Iterator[str]:
    """Names in a statement, and texts that could be names: ``getattr(module, "make")``."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
