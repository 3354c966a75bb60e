"""What the pages of docs/ tell a reader to type."""

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
