"""The quantization schemes, with Arm's names, which are accepted wherever a scheme is: ``schemes.toml``. No torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.errors import ConfigError, suggestion
from core.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent.parent
"""The folder ``models``."""
CODE = ("", "zoo", "users", "request", "loading", "lowering", "reference", "samples")
"""The folders in it whose modules export."""


def read(name: str | Path) -> dict[str, dict[str, Any]]:
    """The table of tables in ``models/<name>``, or in the file of an absolute path."""
    path = HERE / name
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read.", str(error), f"git checkout -- {path.relative_to(ROOT).as_posix()}"
        ) from error


ONNX_SCHEMES = ("fp32", "qs8")
"""Those that ``.onnx`` files come in."""


@dataclass(frozen=True)
class Scheme:
    """One way to represent weights and activations."""

    name: str
    activations: str
    weights: str
    method: Literal["none", "half", "pt2e", "torchao"]
    weight_bits: int = 0
    """Bits of a quantized weight; 0 when nothing is quantized."""
    group: int = 0
    """How many input features share a weight scale; 0: all of an output channel's."""
    arm: str = ""
    """Arm's name for the arithmetic (``pf32``), a kind of kernels of KleidiAI's."""

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
        arms = list(filter(None, map(type_of, schemes)))
        raise ConfigError(
            f"There is no quantization scheme {name!r}.",
            f"{suggestion(name, [*schemes, *arms])}the schemes are {', '.join(schemes)}, or in Arm's names "
            f"{', '.join(arms)}",
            "./inv models",
            [name],
        )
    return schemes[name]


def scheme_of(name: str) -> str:
    """Our scheme for a name of Arm's; any other word as it is."""
    arms = {one.arm: one.name for one in load_schemes().values() if one.arm}
    return arms.get(name.removesuffix("_gemm"), name)


def schemes_of(names: Sequence[str]) -> tuple[str, ...]:
    """`scheme_of` for several, each once."""
    return tuple(dict.fromkeys(map(scheme_of, names)))


def type_of(scheme: str) -> str:
    """Arm's name for a scheme of ours; empty if there is none."""
    return load_schemes()[scheme].arm if scheme in load_schemes() else ""
