"""Settings: ``slipway`` in ``invoke.yaml``, and the variables ``INVOKE_SLIPWAY_...``. Only names that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.near import nearest

VARIABLE = "INVOKE_SLIPWAY_"
FILES = ("invoke.yaml", "invoke.yml")


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
    if here == root or not any((here / name).is_file() for name in FILES):
        return None
    return here
