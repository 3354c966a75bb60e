"""Draw the README's picture from a real run: ``python -m verify.picture``.

The text is what the command printed; nothing is added but the prompt.
"""

from __future__ import annotations

import io
import os
import subprocess

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from core.errors import RunError
from core.files import write_atomic
from core.paths import ROOT

COMMAND = ("./inv", "deploy", "--device", "pi", "--model", "mobilenet_v2")
COLUMNS = 104

# Rich's own template loads a font from the web; a picture in a README should load nothing.
TEMPLATE = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; font-variant-ligatures: none; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect fill="#1e2127" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate(10, 10)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Run the command, which must succeed, and write ``docs/deploy.svg``."""
    done = subprocess.run(
        COMMAND,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(COLUMNS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RunError(f"{' '.join(COMMAND)} failed (exit {done.returncode}).", done.stdout, "run it by hand")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {' '.join(COMMAND)}", style="bold green"))
    console.print(Text(done.stdout.replace(str(ROOT), ".")))
    picture = console.export_svg(theme=DIMMED_MONOKAI, code_format=TEMPLATE, font_aspect_ratio=0.6, unique_id="slipway")
    write_atomic(ROOT / "docs" / "deploy.svg", picture)


if __name__ == "__main__":
    main()
