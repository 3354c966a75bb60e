"""The available partitioners, and how to make them. Imports the exporter only in `make`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, HostError
from core.near import suggestion
from models.options import Options
from models.tables import read

DEFAULT = ("xnnpack",)
NONE = "none"
"""Given alone: no delegate at all, portable kernels only."""


@dataclass(frozen=True)
class Entry:
    """One partitioner of the table."""

    name: str
    title: str
    path: str
    """``module:class``."""
    backend: str
    options: tuple[str, ...]
    needs: str


@functools.cache
def load_partitioners() -> dict[str, Entry]:
    """All partitioners by name."""
    return {
        name: Entry(name=name, **{**row, "options": tuple(row["options"])})
        for name, row in read("partitioners.toml").items()
    }


def check(names: Sequence[str], options: Options) -> tuple[str, ...]:
    """``names``, or the default when empty, after a check that they exist and take ``options``.

    Raises:
        ConfigError: an unknown or repeated name, or an option that does not fit any of them.
    """
    chosen = tuple(names) or DEFAULT
    table = load_partitioners()
    for name in chosen:
        if name not in table and chosen != (NONE,):
            raise ConfigError(
                f"There is no partitioner {name!r}.",
                f"{suggestion(name, table)}they are {', '.join(table)}; {NONE} alone means portable kernels only",
                "./inv export --partitioners xnnpack",
                [name],
            )
    if len(set(chosen)) < len(chosen):
        raise ConfigError(
            f"A partitioner is named twice: {', '.join(chosen)}.",
            "",
            f"--partitioners {','.join(dict.fromkeys(chosen))}",
        )
    taken = {option for name in chosen if name in table for option in table[name].options}
    for option in options.partitioner_arguments():
        if option not in taken:
            able = [entry.name for entry in table.values() if option in entry.options]
            raise ConfigError(
                f"No partitioner of {', '.join(chosen)} takes the option {option}.",
                f"these do: {', '.join(able)}",
                f"--partitioners {able[0]}",
                [option],
            )
    return chosen


def make(names: Sequence[str], options: Options) -> list[Any]:
    """Instances in priority order, each with those of ``options`` that it takes.

    Raises:
        HostError: a partitioner cannot be imported here.
    """
    made = []
    for name in names:
        if name == NONE:
            continue
        entry = load_partitioners()[name]
        module, _, attribute = entry.path.partition(":")
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, RuntimeError) as error:
            hint = f"install {entry.needs} into the environment" if entry.needs else "./inv doctor"
            raise HostError(f"The partitioner {name} does not work on this machine.", str(error), hint) from error
        arguments = {key: value for key, value in options.partitioner_arguments().items() if key in entry.options}
        if "config_precisions" in arguments:
            from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType

            arguments["config_precisions"] = [
                ConfigPrecisionType[word.upper()] for word in arguments["config_precisions"]
            ]
        made.append(kind(**arguments))
    return made
