"""The zoo: ``zoo.toml`` as objects, and the state of its exports. Without torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from core.cli.near import suggestion
from core.errors import ConfigError
from core.paths import IMPORTS
from models.zoo.schemes import ONNX_SCHEMES, get_scheme, load_schemes
from models.zoo.tables import read
from models.zoo.type_names import scheme_of


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo."""

    name: str
    title: str
    description: str
    maker: str
    """``module:function``."""
    schemes: tuple[str, ...]
    """Those that make sense."""
    onnx: tuple[str, ...] = ()
    """Those that make sense as ``.onnx``."""
    state_dict: str = ""
    """The project whose parameter names it uses; empty if it does not take a file of weights."""

    def schemes_of(self, format: str) -> tuple[str, ...]:  # noqa: A002
        """The schemes that make sense in a format: ``pte`` or ``onnx``."""
        return self.onnx if format == "onnx" else self.schemes

    @property
    def source(self) -> Path:
        """The file that defines it."""
        module = self.maker.partition(":")[0]
        return IMPORTS.joinpath(*module.split(".")).with_suffix(".py")


@functools.cache
def load_zoo() -> dict[str, ZooModel]:
    """All models by name, in the table's order."""
    zoo = {}
    for name, row in read("zoo/zoo.toml").items():
        model = ZooModel(name=name, **{**row, "schemes": tuple(row["schemes"]), "onnx": tuple(row["onnx"])})
        for scheme in (*model.schemes, *model.onnx):
            get_scheme(scheme)
        zoo[name] = model
    return zoo


def get_model(name: str) -> ZooModel:
    """The zoo's model called ``name``.

    Raises:
        ConfigError: there is none.
    """
    zoo = load_zoo()
    if name not in zoo:
        raise ConfigError(
            f"There is no model {name!r} in the zoo.",
            f"{suggestion(name, zoo)}the zoo has {', '.join(zoo)}; a model of your own is path/to/file.py:function",
            "./inv models",
            [name],
        )
    return zoo[name]


def everything(format: str = "pte") -> list[tuple[str, str]]:  # noqa: A002
    """Every model with every scheme that makes sense for it: what ``--model all`` means."""
    return [(model.name, scheme) for model in load_zoo().values() for scheme in model.schemes_of(format)]


def combinations(model: str, scheme: str, format: str = "pte") -> list[tuple[str, str]]:  # noqa: A002
    """The exports that ``model`` and ``scheme`` ask for; ``all`` stands for every one that makes sense.

    Raises:
        ConfigError: no model of the zoo has that scheme.
    """
    scheme = scheme_of(scheme)
    if model != "all" and scheme != "all":
        return [(model, scheme)]
    if ":" in model:  # the user's own: nobody knows yet which make sense
        return [(model, each) for each in (ONNX_SCHEMES if format == "onnx" else load_schemes())]
    if scheme != "all":
        get_scheme(scheme)
    known = {model: get_model(model)} if model != "all" else load_zoo()
    return [(row.name, each) for row in known.values() for each in row.schemes_of(format) if scheme in ("all", each)]
