"""How large the checkout is: ``python -m verify.house`` prints it, of the files that git knows."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core import console
from core.paths import ROOT
from core.processes.commands import run
from verify.site import collection

ROOMS = ("core", "toolchains", "models", "deploy", "commands", "verify")
"""The packages of Python, from the lowest level up."""
PRODUCT = (*ROOMS, "runtime", "recipes", "tasks.py", "conanfile.py", "inv")
CODE = (".py", ".cpp", ".h", ".hpp", ".c", ".cc", ".java", ".sh", ".cmake", ".j2", ".js", ".toml", ".yml")
"""Files in which passages are looked for."""
PASSAGE = 6
"""Lines of the shortest one; empty lines and indentation do not count."""


def files() -> dict[str, list[str]]:
    """The lines of every file of text, by its path in the checkout; none for other files and links."""
    found: dict[str, list[str]] = {}
    for name in run(["git", "ls-files", "-z"], cwd=ROOT).stdout.split("\0")[:-1]:
        path = ROOT / name
        try:
            found[name] = [] if path.is_symlink() else path.read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            found[name] = []
    return found


def kind(name: str) -> str:
    """``product``, ``tests``, ``docs`` or ``other``."""
    top = name.partition("/")[0]
    if top == "tests" or name.startswith(("runtime/tests/", "runtime/fuzz/")) or "/test_package/" in name:
        return "tests"
    return "docs" if top == "docs" else "product" if top in PRODUCT else "other"


Place = tuple[str, int]
"""A file, and a line of those that are not empty, from 0."""


def passages(texts: Mapping[str, Sequence[str]]) -> Iterator[tuple[Place, Place]]:
    """Where each pair of equal passages begins: as long as they go, at least `PASSAGE` lines."""
    places: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    lines = {name: [text for line in all_lines if (text := line.strip())] for name, all_lines in texts.items()}
    for name, own in lines.items():
        for at in range(len(own) - PASSAGE + 1):
            places[tuple(own[at : at + PASSAGE])].append((name, at))
    for found in places.values():
        for one, other in itertools.combinations(found, 2):
            before = [lines[name][at - 1] if at else name for name, at in (one, other)]
            if before[0] != before[1]:
                yield one, other


def measures() -> dict[str, int]:
    """Everything that is counted."""
    texts = files()
    lines = {name: len(text) for name, text in texts.items()}

    def of(*kinds: str) -> int:
        return sum(count for name, count in lines.items() if kind(name) in kinds)

    tasks = collection()
    code = {name: text for name, text in texts.items() if Path(name).suffix in CODE and kind(name) != "docs"}
    return {
        "lines": sum(lines.values()), "product": of("product"),
        **{f"- {top}": sum(count for name, count in lines.items() if name.partition("/")[0] == top and
                           kind(name) == "product") for top in PRODUCT},
        "tests": of("tests"), "docs": of("docs"),
        "pages": sum(name.startswith("docs/") and name.endswith(".md") for name in lines),
        "files": len(lines),
        "entries at the root": len({name.partition("/")[0] for name in lines}),
        "commands in --list": sum(not name.startswith("self.") for name in tasks.task_names),
        "options": sum(not one.positional for name in tasks.task_names for one in tasks[name].get_arguments()),
        "repeated passages": sum(1 for _ in passages(code)),
    }  # fmt: skip


if __name__ == "__main__":
    console.table("The checkout", ["measure", "count"], [[name, f"{count:,}"] for name, count in measures().items()])
