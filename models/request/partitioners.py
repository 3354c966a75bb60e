"""The available partitioners, and how to make them. Imports the exporter only in `make`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.environment import bootstrap
from core.errors import ConfigError, ExportError, HostError, suggestion
from core.files import sha256_file
from models.request import backends
from models.request.options import Options
from models.zoo.tables import read

DEFAULT = ("xnnpack",)
NONE = "none"
"""Given alone: no delegate at all, portable kernels only."""

_NOT_DYNAMIC = (NONE, "xnnpack-float")
"""Those that leave dynamically quantized layers to the portable kernels, which do not have torchao's operators."""

_ELSEWHERE = {
    "qualcomm": "it needs Qualcomm's SDK",
    "mediatek": "it needs MediaTek's mtk_converter",
    "samsung": "it needs Samsung's SDK",
    "nxp": "it needs NXP's eIQ Neutron SDK",
    "cadence": "it is not a delegate: its kernels need Cadence's compiler",
    "cortex-m": "it is not a delegate: its kernels are linked into the firmware",
    "metal": "it needs a Mac",
    "mlx": "it needs a Mac",
    "mps": "upstream removed it; coreml is for the same devices",
    "cuda": "it needs a GPU of Nvidia's and Triton",
}
"""Backends of upstream's that this exporter cannot serve, and why (docs/models.md)."""


@dataclass(frozen=True)
class Entry:
    """One partitioner of the table."""

    name: str
    title: str
    path: str
    """``module:class``."""
    backend: str
    options: tuple[str, ...] = ()
    quantizer: str = ""
    """``module:function`` of the PT2E quantizer that its int8 layers need; empty: XNNPACK's."""
    set: str = ""
    """The packages that it needs besides the exporter's; empty if none."""


@functools.cache
def load_partitioners() -> dict[str, Entry]:
    """All partitioners by name."""
    return {
        name: Entry(name=name, **{**row, "options": tuple(row.get("options", ()))})
        for name, row in read("request/partitioners.toml").items()
    }


def is_own(name: str) -> bool:
    """Whether a partitioner is a function of the user's, ``path/to/file.py:function``."""
    return ".py:" in name


def _own(name: str) -> tuple[Path, str]:
    file, _, function = name.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(
            f"There is no file {file}.",
            "--partitioners names a function in it",
            "--partitioners FILE.py:FUNCTION",
            [name],
        )
    return path, function


def sets(names: Sequence[str]) -> dict[str, str]:
    """The sets of packages that these partitioners need, and the digests of their locks."""
    table = load_partitioners()
    found = {table[name].set for name in names if name in table and table[name].set}
    return {name: sha256_file(bootstrap.lock_file(name)) for name in sorted(found)}


def sources(names: Sequence[str]) -> list[str]:
    """What the user's own partitioners are, by digest of their code."""
    return [sha256_file(_own(name)[0]) for name in names if is_own(name)]


def check(names: Sequence[str], options: Options) -> tuple[str, ...]:
    """``names``, or the default when empty, after a check that they exist and take ``options``.

    Raises:
        ConfigError: an unknown or repeated name, or an option that does not fit any of them.
    """
    chosen = tuple(names) or DEFAULT
    table = load_partitioners()
    for name in chosen:
        if is_own(name):
            _own(name)
        elif name in _ELSEWHERE:
            raise ConfigError(
                f"Slipway does not export for {name}.",
                f"{_ELSEWHERE[name]}; what it exports for is in docs/models.md",
                "./inv export --partitioners xnnpack",
                [name],
            )
        elif name not in table and chosen != (NONE,):
            raise ConfigError(
                f"There is no partitioner {name!r}.",
                f"{suggestion(name, table)}they are {', '.join(table)}; FILE.py:FUNCTION is one of your own; "
                f"{NONE} alone means portable kernels only",
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


def why_not(names: Sequence[str], options: Options, dynamic: bool) -> str:
    """Why these partitioners make no program of a scheme; empty if they do.

    Args:
        dynamic: the scheme finds scales at run time.
    """
    limited = options.config_precisions and "dynamic_quant" not in options.config_precisions
    left = _NOT_DYNAMIC + (("xnnpack",) if limited else ())
    if not dynamic or not all(name in left for name in names):
        return ""
    precisions = f" and config_precisions={','.join(options.config_precisions)}" if limited else ""
    return (
        "dynamic quantization needs a backend that computes it, as XNNPACK does: ExecuTorch's portable kernels do not, "
        f"and with partitioners={','.join(names)}{precisions} the layers are left to them"
    )


def make(names: Sequence[str], options: Options) -> list[Any]:
    """Instances in priority order, each with those of ``options`` that it takes.

    Raises:
        HostError: a partitioner cannot be imported here.
    """
    made = []
    for name in names:
        if is_own(name):
            made.append(_made_by_user(name))
        elif name != NONE:
            made.append(_made(load_partitioners()[name], options))
    return made


def _made(entry: Entry, options: Options) -> Any:
    if entry.set:
        backends.enter(entry.set)
    module, _, attribute = entry.path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        arguments = {key: value for key, value in options.partitioner_arguments().items() if key in entry.options}
        if "config_precisions" in arguments:
            from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType

            arguments["config_precisions"] = [
                ConfigPrecisionType[word.upper()] for word in arguments["config_precisions"]
            ]
        if "configs" in arguments:
            arguments["configs"] = _configs(arguments["configs"])
        return kind(**arguments)
    except (ImportError, RuntimeError) as error:
        hint = "--partitioners with others; docs/models.md says what each one needs"
        raise HostError(f"The partitioner {entry.name} does not work on this machine.", str(error), hint) from error


def quantizer(names: Sequence[str], options: Options) -> Any:
    """The PT2E quantizer for what the first of these partitioners takes; ``None``: XNNPACK's."""
    entry = load_partitioners().get(names[0]) if names else None
    if entry is None or not entry.quantizer:
        return None
    module, _, function = entry.quantizer.partition(":")
    return getattr(importlib.import_module(module), function)(options.accelerator)


def _configs(names: Sequence[str]) -> list[Any]:
    """Upstream's classes of these names.

    Raises:
        ConfigError: there is no such class.
    """
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS

    known = {one.__name__: one for one in ALL_PARTITIONER_CONFIGS}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"XNNPACK's partitioner has no config {name!r}.",
                f"{suggestion(name, known)}they are {', '.join(sorted(known))}",
                "--options configs=LinearConfig,ConvolutionConfig",
                [name],
            )
    return [known[name] for name in names]


def _made_by_user(name: str) -> Any:
    """What the user's function returns.

    Raises:
        ExportError: it fails, or returns something else than a partitioner.
    """
    from executorch.exir.backend.partitioner import Partitioner

    from models.users.users_code import call

    partitioner = call(*_own(name))
    if not isinstance(partitioner, Partitioner):
        raise ExportError(
            f"{name} returned {type(partitioner).__name__}, not a partitioner.",
            "a partitioner is an object of a class derived from executorch.exir.backend.partitioner.Partitioner",
            "return XnnpackPartitioner() to see it work",
        )
    return partitioner
