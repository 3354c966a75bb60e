"""The available partitioners, and how to make them. Imports the exporter only in `make`."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

from core.errors import ConfigError, ExportError, HostError, suggestion
from core.files import sha256_bytes, sha256_file
from models.request.options import Options, pairs
from models.zoo.schemes import Scheme, read
from models.zoo.trained import TRAINED

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
    options: tuple[str, ...] = ()


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
    left = (NONE, "xnnpack") if limited else (NONE,)
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
    module, _, attribute = entry.path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        arguments = {key: value for key, value in options.partitioner_arguments().items() if key in entry.options}
        if "config_precisions" in arguments:
            from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType

            arguments["config_precisions"] = [
                ConfigPrecisionType[word.upper()] for word in arguments["config_precisions"]
            ]
        return kind(**arguments)
    except (ImportError, RuntimeError) as error:
        hint = "--partitioners with others; docs/models.md says what each one needs"
        raise HostError(f"The partitioner {entry.name} does not work on this machine.", str(error), hint) from error


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


KINDS = {"pt2e": ("float",), "torchao": ("float", "int8", "int4")}
"""What ``layers`` can make of a layer, by the scheme's method."""
_BLOCK = 32
"""XNNPACK takes blocks of multiples of this many input features."""
_LONGEST = 60
# Options that do not change what a program computes with, or that change it like a model of its own.
_NOT_NAMED = frozenset(["depends", "strict", "weights"])


def scheme_with(scheme: Scheme, options: Options) -> Scheme:
    """The scheme as the options change it.

    Raises:
        ConfigError: an option that does not go with the scheme, or a value that XNNPACK does not take.
    """
    if options.group:
        _only("group", scheme.group > 0, scheme, "qd8_qb4w")
        if options.group % _BLOCK:
            raise ConfigError(
                f"A group of {options.group} is not possible.",
                f"XNNPACK takes blocks of {_BLOCK}, {2 * _BLOCK}, {3 * _BLOCK}, ... input features",
                f"group={max(1, round(options.group / _BLOCK)) * _BLOCK}",
                [str(options.group)],
            )
        scheme = replace(scheme, group=options.group, weights=f"int4, one scale per {options.group} input features")
    if options.quantizer:
        _only("quantizer", scheme.method == "pt2e", scheme, "qs8")
    if options.layers:
        _only("layers", scheme.method in KINDS, scheme, "qs8")
        for word in options.layers:
            pattern, colon, kind = word.rpartition(":")
            if not colon or not pattern or kind not in KINDS[scheme.method]:
                raise ConfigError(
                    f"layers={word} is not PATTERN:KIND.",
                    f"with {scheme.name} the kinds are {', '.join(KINDS[scheme.method])}; the pattern is of a module's "
                    "name, as blocks.*.mlp",
                    f"layers={pattern or 'head'}:float",
                    [word],
                )
    return scheme


def _only(option: str, fits: bool, scheme: Scheme, other: str) -> None:
    if not fits:
        raise ConfigError(
            f"The option {option} does not go with the scheme {scheme.name}.", f"it is for {other}", f"--scheme {other}"
        )


def kind_of(layers: Sequence[str], name: str) -> str:
    """What ``layers`` says about the module called ``name``: the last pattern that fits counts; empty: nothing."""
    for word in reversed(layers):
        pattern, _, kind = word.rpartition(":")
        if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*"):
            return kind
    return ""


def chosen(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Partitioners and options of a variant: ``none``, ``vulkan+xnnpack``, ``group=64;layers=head:float``.

    Raises:
        UsageError: an option without a value, or the same one twice.
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    names = [name for word in words if "=" not in word for name in re.split("[+,]", word) if name]
    return tuple(names), pairs(";".join(word for word in words if "=" in word))


def suffix(partitioners: Sequence[str], options: Options) -> str:
    """What tells this program from one with the default partitioner and options: ``-vulkan_xnnpack-per_op_mode``."""
    words = ["_".join(PurePath(name).name for name in partitioners)] if tuple(partitioners) not in ((), DEFAULT) else []
    for name, value in options.to_json().items():
        if name == "weights" and value == TRAINED:
            words.append(TRAINED)
        if name in _NOT_NAMED:
            continue
        if name in ("quantizer", "samples"):
            value = PurePath(value).name  # noqa: PLW2901  # the file's folder says little
        text = "_".join(value) if isinstance(value, list) else str(value)
        words.append(name if value is True else f"{name}_{text}")
    named = "-".join(re.sub(r"[^A-Za-z0-9_.-]+", "_", word).strip("_") for word in words)
    if len(named) > _LONGEST:
        named = f"{named[: _LONGEST - 9]}-{sha256_bytes(named.encode())[:8]}"
    return f"-{named}" if named else ""
