"""The available partitioners, and how to make them. Imports the exporter only in `make`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from core.errors import ConfigError, suggestion
from core.files import sha256_bytes
from models.request.options import Options, pairs
from models.users.users_code import function_in, is_function, made
from models.zoo.schemes import Scheme
from models.zoo.trained import TRAINED

DEFAULT = ("xnnpack",)
NONE = "none"
"""Given alone: no delegate at all, portable kernels only."""


def check(names: Sequence[str], options: Options) -> tuple[str, ...]:
    """``names``, or the default when empty, after a check that they exist and take ``options``.

    Raises:
        ConfigError: an unknown or repeated name, or an option that does not fit any of them.
    """
    chosen = tuple(names) or DEFAULT
    for name in chosen:
        if is_function(name):
            function_in(name, "--partitioners ")
        elif name not in DEFAULT and chosen != (NONE,):
            raise ConfigError(
                f"There is no partitioner {name!r}.",
                f"{suggestion(name, DEFAULT)}it is {DEFAULT[0]}, or FILE.py:FUNCTION, which returns another of "
                f"upstream's; {NONE} alone means portable kernels only",
                f"./inv export --partitioners {DEFAULT[0]}",
                [name],
            )
    if len(set(chosen)) < len(chosen):
        raise ConfigError(
            f"A partitioner is named twice: {', '.join(chosen)}.",
            "",
            f"--partitioners {','.join(dict.fromkeys(chosen))}",
        )
    if options.per_op_mode and DEFAULT[0] not in chosen:
        raise ConfigError(
            f"No partitioner of {', '.join(chosen)} takes the option per_op_mode.",
            f"{DEFAULT[0]} does",
            f"--partitioners {DEFAULT[0]}",
            ["per_op_mode"],
        )
    return chosen


def why_not(names: Sequence[str], dynamic: bool) -> str:
    """Why these partitioners make no program of a scheme (``dynamic``: it finds scales at run time); or empty."""
    if not dynamic or tuple(names) != (NONE,):
        return ""
    return (
        "dynamic quantization needs a backend that computes it, as XNNPACK does: ExecuTorch's portable kernels do not, "
        f"and with partitioners={NONE} the layers are left to them"
    )


def make(names: Sequence[str], options: Options) -> list[Any]:
    """Instances in priority order.

    Raises:
        ExportError: the user's function fails, or returns something else than a partitioner.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir.backend.partitioner import Partitioner

    return [
        XnnpackPartitioner(per_op_mode=options.per_op_mode)
        if name in DEFAULT
        else made(name, Partitioner, "partitioner")
        for name in names
        if name != NONE
    ]


KINDS = {"pt2e": ("float",), "torchao": ("float", "int8", "int4")}
"""What ``layers`` can make of a layer, by the scheme's method."""
_BLOCK = 32
"""XNNPACK takes blocks of multiples of this many input features."""
_LONGEST = 60
# Options that do not change what a program computes with, or that change it like a model of its own.
_NOT_NAMED = frozenset(["strict", "weights"])


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
    """Partitioners and options of a variant: ``none``, ``FILE.py:FUNCTION+xnnpack``, ``group=64;layers=head:float``.

    Raises:
        UsageError: an option without a value, or the same one twice.
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    names = [name for word in words if "=" not in word for name in re.split("[+,]", word) if name]
    return tuple(names), pairs(";".join(word for word in words if "=" in word))


def suffix(partitioners: Sequence[str], options: Options) -> str:
    """What tells this program from one with the default partitioner and options: ``-none-layers_0_float``."""
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
