"""The command line: start, settings, tasks, help, completion, and errors as messages.

Importing it hands over to ``./inv`` if another program, such as an installed ``invoke``, loads `tasks`: so ``invoke
deploy`` and ``./inv deploy`` are the same command: the same environment, errors and completion.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_INVOKE = ("inv", "invoke")


def _by_invoke(argv: list[str], modules: object) -> bool:
    """Whether Invoke's own program runs in this process, and not Slipway's."""
    started = Path(argv[0]) if argv else Path()
    name = started.parent.name if started.name == "__main__.py" else started.stem
    return name in _INVOKE and "core.cli.main" not in modules  # type: ignore[operator]


if _by_invoke(sys.argv, sys.modules):
    _inv = os.fspath(Path(__file__).resolve().parent.parent.parent / "inv")
    os.execv(_inv, [_inv, *sys.argv[1:]])  # noqa: S606  # argv, no shell
