"""Text from a device, a file or a server, escaped so that a terminal shows it and never obeys it.

Control characters, characters that change the direction or the look of what follows them, and lone surrogates are
written as escapes (``\\x1b``). So are the commands that GitHub Actions takes from a job's log (``::error::``, ``##[``).
"""

from __future__ import annotations

import json
import re
from typing import Any

_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    r"\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""C0, C1; all format characters (zero width, bidirectional overrides, tags, ...); line separators; surrogates."""

_COMMAND = re.compile(
    r"::(?=(?:error|warning|notice|debug|group|endgroup|echo|stop-commands|add-mask|add-matcher|remove-matcher|"
    r"set-output|save-state|set-env|add-path|internal-[a-z-]+)(?:::|\s))",
    re.IGNORECASE,
)
"""The beginning of a workflow command of GitHub Actions (docs.github.com, "Workflow commands for GitHub Actions")."""

MOST_LINES = 8
MOST_LETTERS = 1200
"""Characters of a quotation in our messages."""


def plain(text: str) -> str:
    """``text`` with every character that a terminal would not print as an escape; tabs and line feeds stay."""
    shown = _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n"))
    return _COMMAND.sub(r":\\x3a", shown).replace("##[", r"##\x5b")


def one_line(text: str, most: int = 200) -> str:
    """`plain` text in one line, at most ``most`` characters of it."""
    words = " ".join(plain(text).split())
    return words if len(words) <= most else words[: most - 1] + "…"


def says(who: str, text: str) -> str:
    """A marked quotation: ``pi says: "…"``; several lines follow each other, each behind ``|``.

    The end of a long text is shown: it usually names the error.
    """
    lines = [line for line in plain(text.strip()[-MOST_LETTERS:]).split("\n") if line.strip()][-MOST_LINES:]
    if not lines:
        return ""
    if len(lines) == 1:
        return f'{who} says: "{lines[0].strip()}"'
    return f"{who} says:" + "".join(f"\n  | {line}" for line in lines)


def plain_values(value: Any) -> Any:
    """A JSON value with every text in it `plain`, keys too."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): plain_values(each) for key, each in value.items()}
    return [plain_values(each) for each in value] if isinstance(value, (list, tuple)) else value


def json_text(value: Any) -> str:
    """Indented JSON that a terminal can show: unsafe characters are ``\\u`` escapes, which keep the value."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # Control characters below U+0020 are escapes already; all others can only be inside of strings.
    return _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], text).replace("##[", "##\\u005b")
