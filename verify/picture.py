"""Draw the README's pictures from real runs: ``python -m verify.picture deploy``, or ``answer``.

The text is what the command left on a terminal; nothing is added but the prompt.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from core.errors import RunError
from core.files import write_atomic
from core.paths import ROOT
from models.zoo.trained import WEIGHTS

COMMANDS = {
    "deploy": "./inv deploy --device pi --model mobilenet_v2",
    "answer": './inv deploy --device pi --model smollm2_135m --prompt "Why is the sky blue?" --generate 48',
}
COLUMNS = 104

# Rich's own template loads a font from the web, and draws a window; a picture in a README should load nothing.
TEMPLATE = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "ui-monospace"
)

_CONTROL = re.compile(r"\x1b\[(?P<count>\d*)(?P<what>[AK])|\x1b\[\?25[hl]|(?P<end>\r\n|\n)|(?P<back>\r)")
"""What live lines use to change in place: cursor up, erase the line, hide the cursor."""


def settled(said: str) -> str:
    """What a terminal shows in the end, with its colours, of text with live lines in it."""
    lines, row, start = [""], 0, 0
    for match in _CONTROL.finditer(said):
        lines[row] += said[start : match.start()]
        start = match.end()
        if match["what"] == "A":
            row = max(row - int(match["count"] or 1), 0)
        elif match["what"] == "K":
            lines[row] = ""
        elif match["end"]:
            row += 1
            lines += [""] if row == len(lines) else []
    lines[row] += said[start:]
    return "\n".join(lines)


def run(command: str) -> tuple[int, str]:
    """The command in a terminal of its own: exit code, and what it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", WEIGHTS}}
    child = subprocess.Popen(
        shlex.split(command), cwd=ROOT, env={**env, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(ours, 1 << 16):
            said += piece
    os.close(ours)
    return child.wait(), said.decode(errors="replace")


def main(name: str) -> None:
    """Run the command, which must succeed, and write ``docs/<name>.svg``."""
    command = COMMANDS[name]
    code, said = run(command)
    if code:
        raise RunError(f"{command} failed (exit {code}).", settled(said), "run it by hand")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text.from_ansi(settled(said).replace(str(ROOT), ".")))
    picture = console.export_svg(theme=DIMMED_MONOKAI, code_format=TEMPLATE, font_aspect_ratio=0.6, unique_id="slipway")
    write_atomic(ROOT / "docs" / f"{name}.svg", picture)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["deploy"]))
