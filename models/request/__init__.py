"""A request to export: the command line's arguments, checked and resolved. Without torch or running user's code."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import ConfigError, SlipwayError
from core.files import sha256_bytes, sha256_file
from core.paths import ROOT, programs_dir
from models.request.options import Options, parse
from models.request.options import check as check_samples
from models.request.options import files as sample_files
from models.request.partitioners import check, scheme_with, suffix, why_not
from models.users import packages
from models.users.users_code import function_in, is_function
from models.users.watching import changed, version
from models.zoo import ZooModel, get_model, load_zoo, trained
from models.zoo.schemes import CODE, HERE, ONNX_SCHEMES, Scheme, get_scheme, scheme_of
from models.zoo.trained import RANDOM, TRAINED, WEIGHTS

PACKAGES = {
    "pte": ("torch", "executorch", "torchao"),
    "onnx": ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime"),
}
"""The packages whose versions decide what an export gives, by the program's format."""


@dataclass(frozen=True)
class Request:
    """One export to make."""

    model: str
    """As the user wrote it."""
    name: str
    """``<model>-<scheme>``, with ``-onnx`` when it is one; the folder's name."""
    scheme: Scheme
    source: Path
    """The file that defines the model."""
    function: str
    zoo: ZooModel | None
    """The zoo's row; ``None`` for a file of the user's."""
    partitioners: tuple[str, ...]
    options: Options
    folder: Path
    format: str = "pte"
    """``pte`` or ``onnx``."""
    maker: Callable[[], Any] | None = None
    """Makes the model, for callers who have more than a file: called instead of ``function``."""

    @property
    def packages(self) -> tuple[str, ...]:
        """What the user's file needs besides the exporter's packages: ``timm==1.0.31``."""
        return packages.wanted(self.source) if self.zoo is None and self.maker is None else ()

    @property
    def file(self) -> str:
        """The program's name in the folder."""
        return f"model.{self.format}"


def check_format(format: str, scheme: str, partitioners: Sequence[str], options: Options) -> None:  # noqa: A002
    """Refuse options that a program of ``format`` cannot have.

    Raises:
        ConfigError: an unknown format, or a scheme, partitioner or option that is only for ``.pte``.
    """
    if format not in PACKAGES:
        raise ConfigError(
            f"There is no program format {format!r}.", f"they are {', '.join(PACKAGES)}", "--format onnx", [format]
        )
    if format == "pte":
        return
    if scheme not in ONNX_SCHEMES:
        raise ConfigError(
            f"An .onnx is exported as {' or '.join(ONNX_SCHEMES)}, not as {scheme}.",
            "ONNX Runtime's CPU kernels and its XNNPACK provider compute in float32 and static int8",
            f"./inv export --format onnx --scheme {ONNX_SCHEMES[0]}",
            [scheme],
        )
    only = ("per_op_mode", "group", "layers", "quantizer", "strict")
    given = [*partitioners, *(name for name in only if getattr(options, name))]
    if given:
        raise ConfigError(
            f"An .onnx has no {', '.join(given)}.",
            "these are for programs of ExecuTorch; ONNX Runtime divides the graph when it loads it",
            "the same without them",
            given,
        )


def resolve(
    model: str,
    scheme: str = "fp32",
    *,
    partitioners: Sequence[str] = (),
    options: Options | Mapping[str, Any] | None = None,
    out: Path | None = None,
    format: str = "pte",  # noqa: A002  # the command line's word
) -> Request:
    """Check and complete the user's request.

    Args:
        model: a name of the zoo, or ``path/to/file.py:function``.
        out: the folder in which the program's own folder goes; ``dist/programs`` when not given.
        format: ``pte`` or ``onnx``.

    Raises:
        ConfigError: an unknown model, scheme, partitioner or option, or a senseless combination.
        UsageError: there are no such samples.
        ExportError: the user's file is not Python.
    """
    scheme = scheme_of(scheme)
    chosen = parse(options)
    kind = scheme_with(get_scheme(scheme), chosen)
    check_format(format, scheme, partitioners, chosen)
    zoo: ZooModel | None = None
    if ":" in model or model.endswith(".py"):
        source, function = function_in(model)
        label = re.sub(r"[^A-Za-z0-9_.]+", "_", f"{source.stem}") + "-" + function
    else:
        zoo = get_model(model)
        source, function, label = zoo.source, zoo.maker.partition(":")[2], zoo.name
        known = zoo.schemes_of(format)
        if scheme not in known:
            raise ConfigError(
                f"Scheme {scheme} does not suit {model}{'' if format == 'pte' else f' as .{format}'}.",
                f"{zoo.description} Its schemes are {', '.join(known)}",
                f"./inv export --model {model} --scheme {known[0]}{'' if format == 'pte' else f' --format {format}'}",
                [scheme],
            )
        chosen = replace(chosen, weights=chosen.weights or trained.chosen(model))
    if chosen.samples:
        check_samples(chosen.samples)
        # As any process finds them.
        chosen = replace(chosen, samples=os.fspath(Path(chosen.samples).expanduser().absolute()))
    if chosen.weights == RANDOM:
        chosen = replace(chosen, weights="")
    if chosen.weights and (zoo is None or chosen.weights != TRAINED):
        raise ConfigError(
            f"{model} does not take the weights {chosen.weights}.",
            f"a model of the zoo has trained ones or, by {WEIGHTS} or the option weights, random ones",
            "a model of your own, whose function loads its weights: --model FILE.py:FUNCTION",
            [chosen.weights],
        )
    if chosen.quantizer:
        function_in(chosen.quantizer, "--options quantizer=")
    offered = check(partitioners, chosen) if format == "pte" else ()
    if why := why_not(offered, kind.dynamic):
        raise ConfigError(
            f"Scheme {scheme} does not work with these partitioners.",
            why,
            "--partitioners xnnpack, which is the default; or --scheme fp32 or qs8",
            [scheme, *offered],
        )
    rest = f"-{scheme}{suffix(offered, chosen)}" + ("" if format == "pte" else f"-{format}")
    programs = (out or programs_dir()).absolute()
    if zoo is None and _is_anothers(programs / f"{label}{rest}", source):
        label += f"-{sha256_bytes(os.fsencode(source))[:6]}"
    name = label + rest
    return Request(model, name, kind, source, function, zoo, offered, chosen, programs / name, format)


_named: dict[Path, Path] = {}
"""Folders of programs that this process named, and the user's files that they were named for."""


def _is_anothers(folder: Path, source: Path) -> bool:
    """Whether ``folder`` is of a file of the same name in another folder: ``a/net.py`` beside ``b/net.py``."""
    try:
        before = Path(json.loads((folder / "program.json").read_text(encoding="utf-8"))["source"])
    except (OSError, ValueError, KeyError, TypeError):
        before = _named.setdefault(folder, source)
    if before != source and before.is_file():
        return True
    _named[folder] = source
    return False


@functools.cache
def versions(format: str = "pte") -> dict[str, str]:  # noqa: A002
    """Versions of the exporter's packages, without importing them; ``absent`` for one that is not installed."""
    return {package: version(package) for package in PACKAGES[format]}


def _code(format: str) -> dict[str, str]:  # noqa: A002
    """Digests of the code and tables that export."""
    folders = (*CODE, "onnx") if format == "onnx" else CODE
    own = [file for folder in folders for file in sorted((HERE / folder).glob("*.py"))]
    found = {path.relative_to(HERE).as_posix(): sha256_file(path) for path in own}
    return {**found, "core/formats/program.py": sha256_file(ROOT / "core" / "formats" / "program.py")}


def key(request: Request) -> str:
    """Digest of everything that the export depends on and that can be known before it is made."""
    samples, quantizer = request.options.samples, request.options.quantizer
    own = trained.load_trained().get(request.model) if request.options.weights == TRAINED else None
    read = sample_files(samples) if samples and not is_function(samples) else []
    functions = [function_in(one)[0] for one in (*request.partitioners, samples, quantizer) if is_function(one)]
    parts = {
        "model": request.model if request.zoo else [str(request.source), request.function],
        "maker": request.zoo.maker if request.zoo else "",
        "sources": [sha256_file(file) for file in (request.source, *functions)],
        "scheme": repr(request.scheme),
        "partitioners": request.partitioners,
        "options": request.options.to_json(),
        "packages": [request.packages, packages.pins(request.packages)],
        "weights": own.digest if own else "",
        "samples": [[sha256_file(file), os.fspath(file)] for file in read],
        "versions": versions(request.format),
        "code": _code(request.format),
    }
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())


DESCRIPTION = "program.json"  # core.formats.program has it too, but costs pydantic's import


def stale(request: Request) -> str:
    """Why the request's folder does not have the complete and current result of the export; empty if it has."""
    try:
        found = json.loads((request.folder / DESCRIPTION).read_text(encoding="utf-8"))
        files = {request.folder / name: size for name, size in found["files"].items()}
        if not files or not all(file.is_file() and file.stat().st_size == size for file, size in files.items()):
            return "files of the export are missing or have another size"
        if found["export_key"] != key(request):
            return "its model, options, packages or exporter have changed"
        return changed(found.get("depends", {}))
    except FileNotFoundError:
        return "it was not exported"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its description cannot be read"


def current(request: Request) -> bool:
    """Whether the request's folder has the complete and current result of the export."""
    return not stale(request)


@dataclass(frozen=True)
class Row:
    """A line of ``./inv models``."""

    model: str
    title: str
    format: str
    scheme: str
    state: str
    """``current``, ``outdated`` or ``not exported``."""
    folder: str
    size: int
    """Size of the program in bytes; 0 if it does not exist."""


def listing() -> list[Row]:
    """The zoo with the state of its exports, one row for each model, format and scheme."""
    return [
        _row(model, format, scheme)
        for model in load_zoo().values()
        for format in PACKAGES  # noqa: A001  # the command line's word
        for scheme in model.schemes_of(format)
    ]


def _row(model: ZooModel, format: str, scheme: str) -> Row:  # noqa: A002
    request = resolve(model.name, scheme, format=format)
    file = request.folder / request.file
    size = file.stat().st_size if file.is_file() else 0
    try:
        word = ("current" if current(request) else "outdated") if size else "not exported"
    except SlipwayError:
        word = "outdated"
    return Row(model.name, model.title, format, scheme, word, str(request.folder), size)
