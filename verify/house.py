"""Draw the house from the code: ``docs/architecture.svg`` and the rooms' sentences.

``python -m verify.docs`` writes both. A box is a package, an arrow is an import. If an arrow follows from other arrows,
it is left out.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Mapping
from html import escape
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
_ROW, _TALL, _GAP, _LETTER, _MARGIN = 78, 30, 22, 7.3, 20
"""Pixels: between two rows, a box's height, between two boxes, a letter's width, around the picture."""
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>Slipway's packages and their imports</title>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#5b6570"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff" rx="8"/>
<g fill="none" stroke="#5b6570" stroke-width="1.1">"""
_TURNS = 12
"""How often the order in the rows is improved."""


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


def reduced(graph: Graph) -> Graph:
    """The same without the imports that follow from others: a box that a used box needs is not named again."""

    @functools.cache
    def below(box: str) -> frozenset[str]:
        return frozenset(graph[box]).union(*(below(used) for used in graph[box]))

    return {
        box: {used for used in uses if not any(used in below(other) for other in uses)} for box, uses in graph.items()
    }


def _ranks(graph: Graph) -> dict[str, int]:
    """The row of each box, 0 at the bottom: above all that it imports."""

    @functools.cache
    def rank(box: str) -> int:
        return 1 + max((rank(used) for used in graph[box]), default=-1)

    return {box: rank(box) for box in graph}


def _rows(graph: Graph, ranks: Mapping[str, int]) -> tuple[list[list[str]], Graph]:
    """The boxes of each row in their order, and the graph with a point wherever an arrow crosses a row."""
    whole: Graph = defaultdict(set)
    rows: list[list[str]] = [[] for _ in range(max(ranks.values()) + 1)]
    for box in sorted(graph):
        rows[ranks[box]].append(box)
        for used in sorted(graph[box]):
            above = box
            for rank in range(ranks[box] - 1, ranks[used], -1):
                point = f"|{used}|{rank}"  # arrows to the same box share their points
                if point not in rows[rank]:
                    rows[rank].append(point)
                whole[above].add(point)
                above = point
            whole[above].add(used)
    users: Graph = defaultdict(set)
    for box, uses in whole.items():
        for used in uses:
            users[used].add(box)
    for turn in range(_TURNS):
        order = rows if turn % 2 else rows[::-1]
        near = whole if turn % 2 else users
        for row, fixed in zip(order[1:], order, strict=False):
            at = {box: (index + 0.5) / len(fixed) for index, box in enumerate(fixed)}
            old = {box: (index + 0.5) / len(row) for index, box in enumerate(row)}

            def middle(box: str, at: dict[str, float] = at, old: dict[str, float] = old, near: Graph = near) -> float:
                found = [at[other] for other in sorted(near[box]) if other in at]
                return sum(found) / len(found) if found else old[box]

            row.sort(key=middle)
    return rows, whole


def _width(box: str) -> float:
    return 14.0 if box.startswith("|") else len(box) * _LETTER + 18


def svg() -> str:
    """``docs/architecture.svg``."""
    graph = reduced(packages())
    ranks = _ranks(graph)
    rows, arrows = _rows(graph, ranks)
    sizes = [sum(map(_width, row)) + _GAP * (len(row) - 1) for row in rows]
    width, height = max(sizes) + 2 * _MARGIN, len(rows) * _ROW - (_ROW - _TALL) + 2 * _MARGIN
    middles: dict[str, tuple[float, float]] = {}
    for index, row in enumerate(rows):
        spare = (width - 2 * _MARGIN - sizes[index]) / (len(row) + 1)
        x = _MARGIN + spare
        for box in row:
            middles[box] = (x + _width(box) / 2, height - _MARGIN - _TALL / 2 - index * _ROW)
            x += _width(box) + _GAP + spare
    lines = [HEAD.format(width=round(width), height=round(height))]
    for box, uses in arrows.items():
        for used in sorted(uses):
            (x1, y1), (x2, y2) = middles[box], middles[used]
            y1 += 0 if box.startswith("|") else _TALL / 2
            y2 -= 0 if used.startswith("|") else _TALL / 2
            half = (y1 + y2) / 2
            mark = "" if used.startswith("|") else ' marker-end="url(#end)"'
            lines.append(
                f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {half:.0f} {x2:.0f} {half:.0f} {x2:.0f} {y2:.0f}"{mark}/>'
            )
    lines += ["</g>", '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" text-anchor="middle">']
    for box in sorted(graph):
        x, y = middles[box]
        colour = _COLOURS[box.partition(".")[0]]
        lines.append(
            f'<rect x="{x - _width(box) / 2:.0f}" y="{y - _TALL / 2:.0f}" width="{_width(box):.0f}" height="{_TALL}" '
            f'rx="5" fill="{colour}" stroke="#5b6570"/><text x="{x:.0f}" y="{y + 4:.0f}">{escape(box)}</text>'
        )
    return "\n".join([*lines, "</g>", "</svg>", ""])


def sentences() -> str:
    """The table of packages: each with the first line of its docstring."""
    lines = ["| package | what is in it |\n", "|---|---|\n"]
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("__init__.py"), key=lambda found: found.parent.parts):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            name = file.parent.relative_to(ROOT).as_posix()
            lines.append(f"| `{name}/` | {text.splitlines()[0] if text else ''} |\n")
    return "".join(lines)
