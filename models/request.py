"""What is to be exported: the words of the command line, checked and resolved. No torch, nothing of the user's run."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from core.errors import ConfigError, ExportError
from core.files import sha256_bytes, sha256_file
from core.paths import ROOT, programs_dir
from models.options import Options, parse
from models.partitioners import check
from models.schemes import Scheme, get_scheme
from models.tables import HERE
from models.zoo import ZooModel, get_model

PACKAGES = ("torch", "executorch", "torchao")
"""The packages whose versions decide what an export gives."""
WEIGHTS = "SLIPWAY_WEIGHTS"


@dataclass(frozen=True)
class Request:
    """One export to make."""

    model: str
    """As the user wrote it."""
    name: str
    """``<model>-<scheme>``, the folder's name."""
    scheme: Scheme
    source: Path
    """The file that defines the model."""
    function: str
    zoo: ZooModel | None
    """The zoo's row; ``None`` for a file of the user's."""
    partitioners: tuple[str, ...]
    options: Options
    folder: Path


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether the module's top level binds ``name`` (a ``*`` import or a block may: then yes)."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound = {node.name}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            bound = {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}
        if name in bound or "*" in bound:
            return True
    return False


def _user_file(model: str) -> tuple[Path, str]:
    """File and function of ``path/to/file.py:function``."""
    text, _, function = model.rpartition(":")
    if model.endswith(".py"):
        text, function = model, ""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"There is no file {path}.", f"asked for as {model}", "--model path/to/file.py:make_model", [text]
        )
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ExportError(f"{path} is not Python{line}.", str(error), f"python3 -m py_compile {path}") from error
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not function or not _defines(tree, function):
        has = f"it has {', '.join(functions)}" if functions else "it has no function"
        better = functions[0] if functions else "make_model"
        what = (
            f"{path} has no function {function!r}."
            if function
            else f"{model} does not say which function makes the model."
        )
        raise ConfigError(what, has, f"--model {path}:{better}", [function])
    return path.resolve(), function


def resolve(
    model: str,
    scheme: str = "fp32",
    *,
    partitioners: Sequence[str] = (),
    options: Options | Mapping[str, Any] | None = None,
    out: Path | None = None,
) -> Request:
    """Check and complete what the user asked for.

    Args:
        model: a name of the zoo, or ``path/to/file.py:function``.
        out: the folder in which the program's own folder goes; ``dist/programs`` when not given.

    Raises:
        ConfigError: an unknown model, scheme, partitioner or option, or a combination that makes no sense.
        ExportError: the user's file is not Python.
    """
    kind = get_scheme(scheme)
    chosen = parse(options)
    zoo: ZooModel | None = None
    if ":" in model or model.endswith(".py"):
        source, function = _user_file(model)
        label = re.sub(r"[^A-Za-z0-9_.]+", "_", f"{source.stem}") + "-" + function
    else:
        zoo = get_model(model)
        source, function, label = zoo.source, zoo.maker.partition(":")[2], zoo.name
        if scheme not in zoo.schemes:
            raise ConfigError(
                f"Scheme {scheme} makes no sense for {model}.",
                f"{zoo.description} Its schemes are {', '.join(zoo.schemes)}",
                f"./inv export --model {model} --scheme {zoo.schemes[0]}",
                [scheme],
            )
        if zoo.state_dict and not chosen.weights and os.environ.get(WEIGHTS):
            chosen = replace(chosen, weights=os.environ[WEIGHTS])
    if chosen.weights:
        if zoo is None or not zoo.state_dict:
            raise ConfigError(
                f"{model} does not take a file of weights.",
                "a model of your own loads its weights itself",
                "leave out the weights",
            )
        if not Path(chosen.weights).expanduser().is_file():
            raise ConfigError(
                f"There is no file of weights {chosen.weights}.",
                f"named by {WEIGHTS} or by the option weights",
                f"a {zoo.state_dict} state_dict saved by torch.save",
                [chosen.weights],
            )
    name = f"{label}-{scheme}"
    return Request(
        model,
        name,
        kind,
        source,
        function,
        zoo,
        check(partitioners, chosen),
        chosen,
        (out or programs_dir()).absolute() / name,
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


@functools.cache
def versions() -> dict[str, str]:
    """Versions of the exporter's packages, without importing them; ``absent`` for one that is not installed."""
    return {package: _version(package) for package in PACKAGES}


def _code() -> dict[str, str]:
    """Digests of the code and tables that export."""
    files = [*sorted(HERE.glob("*.py")), HERE / "partitioners.toml", ROOT / "core" / "program.py"]
    return {path.name: sha256_file(path) for path in files}


def key(request: Request) -> str:
    """Digest of everything that the export depends on and that can be known before it is made."""
    weights = request.options.weights
    parts = {
        "model": request.model if request.zoo else [str(request.source), request.function],
        "maker": request.zoo.maker if request.zoo else "",
        "source": sha256_file(request.source),
        "scheme": repr(request.scheme),
        "partitioners": request.partitioners,
        "options": request.options.to_json(),
        "weights": sha256_file(Path(weights).expanduser()) if weights else "",
        "versions": versions(),
        "code": _code(),
    }
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())
