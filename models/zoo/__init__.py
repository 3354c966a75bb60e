"""The zoo: ``zoo.toml`` as objects, and the state of its exports. Without torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConfigError, suggestion
from core.paths import IMPORTS
from models.zoo.schemes import ONNX_SCHEMES, get_scheme, load_schemes, read, scheme_of

PORTABLE = "portable"
"""Instead of a scheme: float32 without any delegate, so that portable kernels compute all of it."""


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo."""

    name: str
    title: str
    maker: str
    """``module:function``."""
    schemes: tuple[str, ...]
    """Those that make sense."""
    description: str = ""
    onnx: tuple[str, ...] = ()
    """Those that make sense as ``.onnx``."""
    compared: tuple[str, ...] = ()
    """Of one on which engines are compared, the schemes or `PORTABLE`; none for one of the zoo's list."""
    exact: bool = False
    """Whether it only moves elements or computes with whole numbers: no tolerance."""

    def schemes_of(self, format: str) -> tuple[str, ...]:  # noqa: A002
        """The schemes that make sense in a format: ``pte`` or ``onnx``."""
        return self.onnx if format == "onnx" else self.schemes

    @property
    def source(self) -> Path:
        """The file that defines it."""
        return IMPORTS.joinpath(*self.maker.partition(":")[0].split(".")).with_suffix(".py")


@functools.cache
def _load() -> dict[str, ZooModel]:
    """Every row of the table."""
    found = {}
    for name, row in read("zoo/zoo.toml").items():
        lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
        delegated = tuple(one for one in lists.get("compared", ()) if one != PORTABLE)
        model = found[name] = ZooModel(name=name, **{"schemes": delegated or ("fp32",), **row, **lists})
        for scheme in (*model.schemes, *model.onnx):
            get_scheme(scheme)
    return found


def load_zoo() -> dict[str, ZooModel]:
    """The zoo's models by name, in the table's order."""
    return {name: model for name, model in _load().items() if not model.compared}


def load_compared() -> dict[str, ZooModel]:
    """The further networks on which engines are compared."""
    return {name: model for name, model in _load().items() if model.compared}


def get_model(name: str) -> ZooModel:
    """The zoo's model called ``name``.

    Raises:
        ConfigError: there is none.
    """
    if name not in _load():
        zoo = load_zoo()
        if name in read("zoo/language.toml"):
            raise ConfigError(
                f"{name} is a language model, which reads a prompt.",
                "this takes models that read tensors",
                f"./inv chat --model {name}, or ./inv compare --model {name}",
                [name],
            )
        raise ConfigError(
            f"There is no model {name!r} in the zoo.",
            f"{suggestion(name, zoo)}the zoo has {', '.join(zoo)}; a model of your own is path/to/file.py:function",
            "./inv models",
            [name],
        )
    return _load()[name]


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
