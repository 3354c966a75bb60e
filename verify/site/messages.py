"""Every error message of the code, with its cause and the next step, by its kind: a part of a page of the site."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from core import errors
from core.errors import SlipwayError
from core.paths import ROOT
from verify.site.text import cell

ROOMS = ("core", "toolchains", "models", "deploy", "commands")
"""Packages whose messages users meet; those of ``verify`` concern who works on Slipway."""
ELLIPSIS = "…"
"""Stands for what is known only when it happens: a name, a number, a path."""


@dataclass(frozen=True)
class Message:
    """An error as the code writes it."""

    kind: str
    code: int
    what: str
    cause: str
    hint: str


def classes() -> dict[str, type[SlipwayError]]:
    """The error classes by their names."""
    found = vars(errors).values()
    return {each.__name__: each for each in found if isinstance(each, type) and issubclass(each, SlipwayError)}


def _text(node: ast.expr | None) -> str | None:
    """The words of an expression, with `ELLIPSIS` for its values; ``None`` if it has no words of its own."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part) if isinstance(part, ast.Constant) else ELLIPSIS for part in node.values]
        return "".join(part or "" for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else (left or ELLIPSIS) + (right or ELLIPSIS)
    return None


def messages() -> list[Message]:
    """All of them, by exit code and words."""
    known = classes()
    found: dict[tuple[str, str], Message] = {}
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known):
                    continue
                given = dict(zip(("what", "cause", "hint"), node.args, strict=False))
                given |= {word.arg: word.value for word in node.keywords if word.arg in {"what", "cause", "hint"}}
                what, cause, hint = (_text(given.get(name)) for name in ("what", "cause", "hint"))
                if not what or not what.replace(ELLIPSIS, "").strip(" .:"):
                    continue
                kind = known[node.func.id]
                words = (_squeezed(what), _squeezed(cause), _squeezed(hint))
                found.setdefault((kind.kind, words[0]), Message(kind.kind, kind.exit_code, *words))
    return sorted(found.values(), key=lambda each: (each.code, each.what.lstrip(f"{ELLIPSIS} ").lower()))


def _squeezed(text: str | None) -> str:
    return " ".join((text or "").split())


def markdown() -> str:
    """A table for each kind of error."""
    parts = []
    every = messages()
    for kind in dict.fromkeys(each.kind for each in every):
        rows = [each for each in every if each.kind == kind]
        parts.append(
            f"\n### {kind} (exit code {rows[0].code})\n\n| message | likely cause | next step |\n|---|---|---|\n"
        )
        parts += [f"| {_shown(each.what)} | {_shown(each.cause)} | {_shown(each.hint)} |\n" for each in rows]
    return "".join(parts)


def _shown(text: str) -> str:
    return "" if text == ELLIPSIS else cell(text)
