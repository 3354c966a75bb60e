"""The packages and their imports, from the code: ``docs/architecture.svg`` and the table of packages.

``python -m verify.docs`` writes both. A box is a package, and imports only what lies below its row.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from core.paths import ROOT

ROOMS = ("core", "toolchains", "models", "deploy", "commands", "verify")
"""The packages of Python, from the lowest level up."""

Graph = dict[str, set[str]]
"""A package -> what it imports."""

_COLOURS = {
    "core": "#dfe3e8",
    "toolchains": "#ffe2c2",
    "models": "#ead6f5",
    "deploy": "#cfe5ff",
    "commands": "#fff3b0",
    "verify": "#d3f0d0",
    "tasks": "#f7c9cc",
}
_ROW, _TALL, _GAP, _LETTER, _MARGIN, _WIDE = 40, 28, 12, 7.3, 20, 8
"""Pixels: between two lines, a box's height, between boxes, a letter's width, around the picture; boxes of a line."""
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>Slipway's packages: each imports only what lies below its row</title>
<rect width="{width}" height="{height}" fill="#ffffff" rx="8"/>
<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" text-anchor="middle">"""


def module_of(file: Path) -> str:
    """The name by which ``file`` is imported."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> Mapping[str, Path]:
    """Every module of ours, tests included, by its name."""
    files = [file for room in (*ROOMS, "tests") for file in sorted((ROOT / room).rglob("*.py"))]
    return {module_of(file): file for file in (*files, ROOT / "tasks.py")}


@functools.cache
def imports(file: Path) -> frozenset[str]:
    """Every name that ``file`` imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # A package that only lends its name to its modules is not used itself.
            found |= names if names <= modules().keys() else names | {node.module}
    return frozenset(found)


@functools.cache
def ours(module: str) -> frozenset[str]:
    """The modules of ours that ``module`` imports."""
    known = modules()
    return frozenset(name for name in imports(known[module]) if name in known) - {module}


def _folder(module: str) -> str:
    """The package that ``module`` is filed in."""
    file = modules()[module]
    return module if file.name == "__init__.py" else module.rpartition(".")[0] or module


def _boxes() -> dict[str, str]:
    """Module -> its box: the package, or the module itself where it lies above the packages inside its own package."""
    names = [name for name in modules() if name.partition(".")[0] != "tests"]
    found = {name: _folder(name) for name in names}
    for name in names:
        inside = found[name] + "."
        if name != found[name] and any(_folder(used).startswith(inside) for used in ours(name)):
            found[name] = name
    return found


def packages() -> Graph:
    """Which box imports which; a package without code of its own is none."""
    boxes = _boxes()
    graph: Graph = defaultdict(set)
    for name, box in boxes.items():
        graph[box] |= {boxes[used] for used in ours(name)} - {box}
    empty = {box for box in graph if not any(home == box and _has_code(name) for name, home in boxes.items())}
    used_by_any = set().union(*graph.values())
    return {box: uses - empty for box, uses in graph.items() if box not in empty and (uses or box in used_by_any)}


def _has_code(module: str) -> bool:
    """Whether there is more than a docstring in it."""
    return len(ast.parse(modules()[module].read_text(encoding="utf-8")).body) > 1


def _rows() -> list[list[str]]:
    """The boxes of each row, the lowest first: a box lies above all that it imports."""
    graph = packages()

    @functools.cache
    def rank(box: str) -> int:
        return 1 + max((rank(used) for used in graph[box]), default=-1)

    rows: list[list[str]] = [[] for _ in range(1 + max(map(rank, graph)))]
    for box in sorted(graph):
        rows[rank(box)].append(box)
    return rows


def svg() -> str:
    """``docs/architecture.svg``: a line of boxes for each row, or several for a long one."""
    lines = [
        (index, row[at : at + _WIDE]) for index, row in enumerate(_rows()) for at in reversed(range(0, len(row), _WIDE))
    ]
    sizes = [sum(len(box) * _LETTER + 18 for box in line) + _GAP * (len(line) - 1) for _, line in lines]
    width, height = max(sizes) + 2 * _MARGIN, len(lines) * _ROW + 2 * _MARGIN
    found = [HEAD.format(width=round(width), height=round(height))]
    for at, (index, line) in enumerate(lines):
        x, y = (width - sizes[at]) / 2, height - _MARGIN - (at + 1) * _ROW
        if at and lines[at - 1][0] != index:
            found.append(f'<path d="M{_MARGIN} {y + _ROW - 4}H{width - _MARGIN:.0f}" stroke="#c3c9cf"/>')
        for box in line:
            size = len(box) * _LETTER + 18
            found.append(
                f'<rect x="{x:.0f}" y="{y}" width="{size:.0f}" height="{_TALL}" rx="5" stroke="#5b6570" '
                f'fill="{_COLOURS[box.partition(".")[0]]}"/><text x="{x + size / 2:.0f}" y="{y + 18}">{box}</text>'
            )
            x += size + _GAP
    return "\n".join([*found, "</g>", "</svg>", ""])


def sentences() -> str:
    """The table of packages: each with the first line of its docstring."""
    lines = ["| package | what is in it |\n", "|---|---|\n"]
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("__init__.py"), key=lambda found: found.parent.parts):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            name = file.parent.relative_to(ROOT).as_posix()
            lines.append(f"| `{name}/` | {text.splitlines()[0] if text else ''} |\n")
    return "".join(lines)
