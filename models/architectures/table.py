"""``architectures.toml`` as objects. No torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError
from core.paths import IMPORTS
from models.zoo.schemes import Scheme, get_scheme
from models.zoo.tables import read

PORTABLE = "portable"
"""Instead of a scheme: float32 without any delegate, so that portable kernels compute all of it."""


@dataclass(frozen=True)
class Architecture:
    """One network to compare engines on."""

    name: str
    title: str
    maker: str
    """``module:function``."""
    schemes: tuple[str, ...]
    """Names of schemes, or `PORTABLE`."""
    tests: tuple[str, ...]
    """Those that every test run compares."""
    runs: int
    """Executions in a row; the last one's outputs are compared."""
    exact: bool
    """Whether it only moves elements or computes with whole numbers: no tolerance."""

    @property
    def source(self) -> Path:
        """The file that defines it."""
        return IMPORTS.joinpath(*self.maker.partition(":")[0].split(".")).with_suffix(".py")


def scheme_of(name: str) -> Scheme:
    """The scheme behind a name of `Architecture.schemes`."""
    return get_scheme("fp32" if name == PORTABLE else name)


@functools.cache
def load_architectures() -> dict[str, Architecture]:
    """All by name, in the table's order.

    Raises:
        ConfigError: an unknown scheme, or a tested one that the row does not have.
    """
    found = {}
    for name, row in read("architectures/architectures.toml").items():
        one = Architecture(name=name, **{**row, "schemes": tuple(row["schemes"]), "tests": tuple(row["tests"])})
        for scheme in one.schemes:
            scheme_of(scheme)
        if not set(one.tests) <= set(one.schemes) or one.runs < 1:
            raise ConfigError(
                f"{name} in architectures.toml is wrong.",
                "tests may only name its schemes, and runs must be at least 1",
                "correct models/architectures/architectures.toml",
            )
        found[name] = one
    return found
