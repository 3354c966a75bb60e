"""Words of the code as Markdown: options, paths and names become code."""

from __future__ import annotations

import re

_VALUE = r"(?:'[^']*'|[A-Z][A-Z_]+\b|(?=\S*(?:[_/.@=][\w…%*]|[\d…]))[\w/.@=:…%,*+-]*[\w…%*])"
"""A value after an option, as opposed to the next word of the sentence."""
_OPTION = rf"--(?:[a-z][a-z-]*|…)(?:=\S+|[ ]{_VALUE})?"
_CODE = re.compile(
    rf"``[^`]+``|`[^`]+`"  # marked already
    rf"|(?<![\w`/-]){_OPTION}"
    rf"|(?<![\w`])\./inv(?: [A-Z]+\b| [a-z][a-z.-]*)?(?: {_OPTION}| [A-Z]+\b)*"
    r"|(?<![\w`/])~?/?(?:[\w.<>*-]+/)+[\w.<>*:-]*"  # a path
    r"|(?<![\w`/.])[\w-]+\.py:[\w]+"  # a function of a file
    r"|(?<![\w`/.])[\w-]+\.(?:py|md|toml|json|html|npy|npz|pte|onnx|ptd|etdp|values|yaml|xml|txt|tsv)\b"  # a file
    r"|(?<![\w`])[A-Z]+_[A-Z_]+(?:=\S+)?"  # a variable
)


def cell(text: str, *, table: bool = True) -> str:
    """A help text or the line of a docstring as Markdown that shows it."""

    def code(found: re.Match[str]) -> str:
        inside = found.group().strip("`")
        end = ""
        while inside and inside[-1] in ".,;:)":
            inside, end = inside[:-1], inside[-1] + end
        return f"`{inside}`{end}"

    parts = []
    at = 0
    for found in _CODE.finditer(text):
        parts += [plain(text[at : found.start()]), code(found)]
        at = found.end()
    parts.append(plain(text[at:]))
    shown = "".join(parts)
    return shown.replace("|", "\\|") if table else shown


def plain(text: str) -> str:
    """Text without a meaning in Markdown."""
    return re.sub(r"([\\*_<>\[\]])", r"\\\1", text)
