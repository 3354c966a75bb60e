"""What the `console` blocks of docs/ tell a reader to type."""

from __future__ import annotations

import re

from core.paths import ROOT

DOCS = ROOT / "docs"
INSPECT = "Inspecting a run"
"""The section of compare.md whose commands take what tests/integration/test_inspect.py has at hand."""


def section(page: str, title: str) -> str:
    (found,) = (part for part in sections(page) if part.startswith(f"{title}\n"))
    return found


def sections(page: str) -> list[str]:
    """What stands before a page's first section, and its sections."""
    return re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)


Line = tuple[str, str]
"""A page, and a command as it stands there, without its comment."""

RUN = {
    "build.md": ("./inv build --profiles profiles", "./inv build --profiles profiles --target linux-armv6"),
    "devices.md": (
        "./inv deploy --device cpu:cortex-a53",
        "./inv build --target linux-armv6",
        "./inv devices.run pi-zero",
    ),
    "embedding.md": ("cmake -S runtime/examples -B build -D", "cmake --build build", "build/run_once "),
    "howto.md": ("./inv deploy --device pi", "./inv deploy --device local", "./inv inspect"),
    "lean.md": ("./inv build", "./inv deploy"),
    "matrix.md": ("./inv matrix --devices local --engines lean",),
    "models.md": (
        "./inv export --model net.py:make_model --scheme qs8",
        "./inv deploy --device pi",
        "./inv deploy",
    ),
    "onnx.md": (
        "./inv deploy --device pi --model some.onnx",
        "./inv deploy --device pi --model some.onnx --inputs",
        "./inv deploy --device pi --model some.onnx",
    ),
}
"""Pages and the beginnings of commands that tests/integration/test_tutorials.py types, in this order: all that need
nothing of the reader's, and are not typed by another test."""


def lines(blocks: str = "console") -> list[Line]:
    """All that the pages of docs/ tell a reader to type; a line that ends with a backslash goes on in the next."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(rf"^ *```{blocks}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if blocks == "sh" or line.lstrip().startswith("$ "):
                    command = re.sub(r"(^| )# .*|\s+# .*", "", line.strip().removeprefix("$ "))
                    found += [(page.name, " ".join(command.split()))] if command else []
    return found


def to_run(page: str) -> list[str]:
    """The commands of a page that are typed, in `RUN`'s order."""
    own = [command for name, command in lines() if name == page]
    return [next(one for one in own if one.startswith(start)) for start in RUN[page]]
