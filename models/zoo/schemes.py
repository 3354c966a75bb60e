"""The quantization schemes: ``schemes.toml`` as objects. No torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from core.cli.near import suggestion
from core.errors import ConfigError
from models.zoo.tables import read
from models.zoo.type_names import load_type_names

ONNX_SCHEMES = ("fp32", "qs8")
"""Those that ``.onnx`` files come in."""


@dataclass(frozen=True)
class Scheme:
    """One way to represent weights and activations."""

    name: str
    title: str
    activations: str
    weights: str
    method: Literal["none", "half", "pt2e", "torchao"]
    weight_bits: int
    """Bits of a quantized weight; 0 when nothing is quantized."""
    group: int
    """How many input features share a weight scale; 0: all of an output channel's."""

    @property
    def dynamic(self) -> bool:
        """Whether activation scales are found at run time."""
        return self.method == "torchao"


@functools.cache
def load_schemes() -> dict[str, Scheme]:
    """All schemes by name, in the table's order."""
    return {name: Scheme(name=name, **row) for name, row in read("zoo/schemes.toml").items()}


def get_scheme(name: str) -> Scheme:
    """The scheme called ``name``.

    Raises:
        ConfigError: there is none.
    """
    schemes = load_schemes()
    if name not in schemes:
        raise ConfigError(
            f"There is no quantization scheme {name!r}.",
            f"{suggestion(name, [*schemes, *load_type_names()])}the schemes are {', '.join(schemes)}, "
            f"or in Arm's names {', '.join(load_type_names())}",
            "./inv models",
            [name],
        )
    return schemes[name]
