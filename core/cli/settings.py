"""Settings: ``slipway`` in ``invoke.yaml``, and the variables ``INVOKE_SLIPWAY_...``. Only names that exist.

The checkout's file, the user's own (``~/.invoke.yaml``), the environment and the command line are the user's word. The
current folder's file may come from anyone: only what is below ``slipway`` counts there, none of Invoke's settings, and
a value that is Python code is used once the user agreed to that file, as it is now.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError, UsageError, nearest
from core.paths import INSTALLED

VARIABLE = "INVOKE_SLIPWAY_"
FILES = ("invoke.yaml", "invoke.yml")
_ALLOWED = "allowed.json"
"""In the user's configuration folder: each file that the user agreed to, and its SHA-256 then."""
_code: dict[str, tuple[str, Path]] = {}
"""Settings of the current folder that are Python code: the value, and the file that has it."""


def check(found: Any, known: Iterable[str], environ: Mapping[str, str]) -> None:
    """Refuse settings that nothing reads.

    Args:
        found: what all files and variables have under ``slipway``.
        known: the names of settings.
        environ: the variables of the environment.

    Raises:
        ConfigError: a name that is unknown, with the nearest that is.
    """
    names = list(known)
    if not isinstance(found, Mapping):
        raise ConfigError(
            "slipway in invoke.yaml is not a table of settings.", f"it is {found!r}",
            "write slipway: with lines such as '  device: pi' below",
        )  # fmt: skip
    for name in found:
        if name not in names:
            raise _unknown(f"the setting {str(name)!r}", "", str(name), names, "in invoke.yaml below slipway:")
    for variable in environ:
        name = variable.removeprefix(VARIABLE).lower()
        if variable.startswith(VARIABLE) and name not in names:
            raise _unknown(f"the variable {variable}", VARIABLE, name, names, "in the environment")


def _unknown(what: str, prefix: str, name: str, names: list[str], where: str) -> ConfigError:
    def shown(one: str) -> str:
        return prefix + one.upper() if prefix else one

    meant = nearest(name, names, 0.6)
    return ConfigError(
        f"Slipway does not know {what}.",
        f"did you mean {shown(meant)}?" if meant else f"the settings are {', '.join(map(shown, names))}",
        f"rename it {where}" if meant else f"remove it {where}",
        [name],
    )


def folder_here(root: Path) -> Path | None:
    """The current folder, if it has an ``invoke.yaml`` of its own beside the checkout's."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    if here == root or _file(here) is None:
        return None
    return here


def _file(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def of_folder(folder: Path, found: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """What counts of ``found``, the settings that ``folder`` has; a folder in the checkout is as the checkout.

    Values that are code are kept in mind for `agreed`.
    """
    file = _file(folder)
    if file is None or (not INSTALLED and folder.is_relative_to(root)):
        return dict(found)
    table = found.get("slipway")
    if isinstance(table, Mapping):
        values = {name: value for name, value in table.items() if isinstance(value, str) and ".py" in value}
        _code.update({name: (value, file) for name, value in values.items()})
    return {"slipway": table} if "slipway" in found else {}


def agreed(name: str, value: Any) -> Any:
    """``value`` of the setting ``name``, if the user agreed to run it, or need not.

    Raises:
        UsageError: it is code that the current folder's file names, the user did not agree to that file yet, and there
            is no terminal, or the answer was no.
    """
    text, file = _code.get(name, ("", None))
    if file is None or value != text:
        return value
    from core.files import keep_text, locked, sha256_file

    kept = _user_folder() / _ALLOWED
    digest = sha256_file(file)
    with locked("allowed"):
        allowed = _allowed(kept)
        if allowed.get(str(file)) != digest:
            _ask(name, text, file)
            keep_text(kept, json.dumps({**allowed, str(file): digest}, indent=1) + "\n", 0o600)
    return value


def _user_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("slipway", appauthor=False))


def _allowed(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _ask(name: str, value: str, file: Path) -> None:
    what = f"{file} sets {name}: {value}, which is Python code and would run with your rights."
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"{what}\nRun what this file names, until the file changes? (yes/no) ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() == "yes":
            return
    raise UsageError(
        what,
        "a folder's settings run no code before you agreed to them once, in a terminal",
        f"if you trust it: the same command with --{name} {shlex.quote(value)}, or export {VARIABLE}{name.upper()}",
        [value],
    )
