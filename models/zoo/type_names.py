"""Arm's names for data types (``pf32``), which are accepted wherever a scheme is: ``type_names.toml``. No torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from models.zoo.tables import read


@dataclass(frozen=True)
class TypeName:
    """One name of Arm's: a kind of kernel of KleidiAI's."""

    name: str
    scheme: str
    """Ours."""
    activations: str
    weights: str
    output: str
    layers: str


@functools.cache
def load_type_names() -> dict[str, TypeName]:
    """All of them by name, in the table's order."""
    return {name: TypeName(name=name, **row) for name, row in read("zoo/type_names.toml").items()}


def scheme_of(name: str) -> str:
    """Our scheme for a name of Arm's; any other word as it is."""
    found = load_type_names().get(name.removesuffix("_gemm"))
    return found.scheme if found else name


def schemes_of(names: Sequence[str]) -> tuple[str, ...]:
    """`scheme_of` for several, each once."""
    return tuple(dict.fromkeys(map(scheme_of, names)))


def type_of(scheme: str) -> str:
    """Arm's name for a scheme of ours; empty if there is none."""
    return next((one.name for one in load_type_names().values() if one.scheme == scheme), "")
