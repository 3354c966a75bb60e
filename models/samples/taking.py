"""Samples: one for an export's reference, the others to calibrate with; all for ``./inv compare``. Imports torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.errors import ConfigError, UsageError
from core.files import write_atomic
from core.formats.program import Classes, Sample, Samples
from models import loading
from models.loading import Prepared, reference
from models.lowering import graphs
from models.request import Request, options, resolve
from models.samples import reading
from models.samples.reading import Preparation
from models.zoo.trained import TRAINED, Trained, load_trained

_ADVICE = "--samples FOLDER, with pictures or arrays like those that the program will see, gives scales that fit them"


@dataclass(frozen=True)
class Taken:
    """A model with its samples."""

    model: Prepared
    """With the first sample as its example inputs, and the others as calibration."""
    source: str = ""
    """Where they are from; empty: from the model's own function."""
    warnings: tuple[str, ...] = ()


def trained_of(request: Request) -> Trained | None:
    """The zoo's trained weights, if the request uses them."""
    return load_trained().get(request.model) if request.options.weights == TRAINED else None


def pictures_of(request: Request, module: Any) -> tuple[Preparation, tuple[str, ...]]:
    """How a picture becomes an input of the model, and the names of its classes, if it has some."""
    own = load_trained().get(request.model) if request.zoo else None
    if own is None:
        return Preparation.of(module), ()
    here = own.classes.here.is_file()
    return Preparation(own.resize, own.mean, own.std, known=True), own.names if here else ()


def take(request: Request, model: Prepared) -> Taken:
    """The samples that the user names, or the photographs of trained weights; else the model as it is.

    Raises:
        UsageError: the samples do not fit the model. ConfigError: it has several methods.
    """
    static = request.scheme.method == "pt2e"
    own = trained_of(request)
    if not request.options.samples and own is None:
        # Random weights of the zoo are right with random inputs.
        alone = static and not model.calibration and (request.zoo is None or request.options.weights)
        return Taken(model, warnings=(f"calibrated on the example inputs only: {_ADVICE}",) if alone else ())
    if model.before:
        raise ConfigError(
            "--samples is for models with one method.",
            f"this one has {len(model.before) + 1}",
            "return calibration samples from the model's function (docs/models.md)",
        )
    warnings = []
    examples = [reference.to_numpy(one) for one in model.inputs]
    how, names = pictures_of(request, model.module)
    if request.options.samples:
        source = request.options.samples
        found = reading.read(source, examples, options.MOST, how, names).each
        if not how.known and Path(source).is_dir() and _has_pictures(source):
            warnings.append(
                "pictures were normalized as ImageNet's are: if the model was trained otherwise, give it an attribute "
                "pictures = {'resize': 256, 'mean': (...), 'std': (...)}"
            )
        for raw in found:
            _check_shapes(model, raw, source)
        shown, *seen = found
        if static and not seen:
            seen = found
            warnings.append(f"{source} has one sample: the program is checked on what it was calibrated with")
    else:
        assert own is not None  # noqa: S101  # one of the two, see above
        source = "photographs"
        shown, *seen = (
            reading.Raw((reading.decode(file.here, examples[0], how),))
            for file in (own.picture, *(own.calibration if static else ()))
        )
    calibration = tuple(_tensors(model, raw) for raw in seen) if static else ()
    return Taken(replace(model, inputs=_tensors(model, shown), calibration=calibration), source, tuple(warnings))


def _has_pictures(folder: str) -> bool:
    return any(file.suffix.lower() in options.PICTURES for file in options.files(folder))


def _check_shapes(model: Prepared, raw: reading.Raw, source: str) -> None:
    """Refuse another shape than the example's where shapes are fixed."""
    if model.dynamic_shapes is not None:
        return
    for index, (array, example) in enumerate(zip(raw.inputs, model.inputs, strict=True)):
        if tuple(array.shape) != tuple(example.shape):
            raise UsageError(
                f"Input {index} of a sample of {source} is {'x'.join(map(str, array.shape))}.",
                f"the model takes {'x'.join(map(str, example.shape))}, and its shapes are fixed",
                "samples of that shape, or dynamic shapes (docs/models.md)",
                [source],
            )


def _tensors(model: Prepared, raw: reading.Raw) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(array).to(one.dtype) for one, array in zip(model.inputs, raw.inputs, strict=True))


def classes(request: Request, taken: Taken, scores: Any, folder: Path) -> Classes | None:
    """Write what a deploy needs to name the classes of the picture; ``None`` for a model without names of classes.

    Args:
        scores: the float model's first output.
    """
    own = trained_of(request)
    if own is None:
        return None
    write_atomic(folder / "classes.json", json.dumps(own.names, ensure_ascii=False) + "\n")
    photographed = not request.options.samples
    return Classes(
        file="classes.json",
        picture=f"{own.picture.name}, {own.shows}" if photographed else f"a sample of {Path(taken.source).name}",
        scores=reference.save(folder, "float0", scores),
    )


def prepare(model: str, data: str, most: int, folder: Path) -> Samples:
    """Up to ``most`` samples with the float model's outputs, as files in ``folder``.

    Args:
        data: see `models.samples.reading`; empty: the model's example inputs, as one sample.

    Raises:
        UsageError: the data do not fit. ExportError: the user's code fails. ConfigError: an unknown name.
    """
    request = resolve(model)
    made = loading.load(request)
    examples = [reference.to_numpy(one) for one in made.inputs]
    if not data:
        found = reading.Found([reading.Raw(tuple(examples))], 1)
    else:
        found = reading.read(data, examples, most, *pictures_of(request, made.module))
    each = []
    for number, raw in enumerate(found.each):
        tensors = _tensors(made, raw) if data else made.inputs
        with made.entered(), graphs.unchanged(made.module):
            outputs = reference.eager(made.module, tensors)
        outputs = [one.float() if one is not None and one.is_floating_point() else one for one in outputs]
        inputs, wanted = (
            tuple(
                folder / reference.save(folder, f"sample{number}-{kind}{at}", one).file for at, one in enumerate(given)
            )
            for kind, given in (("input", tensors), ("float", outputs))
        )
        each.append(Sample(inputs, wanted, _plain(raw.label), raw.rows))
    return Samples(each, data, found.of)


def _plain(label: object) -> object:
    """An array of one number as that number."""
    return label.item() if isinstance(label, (np.ndarray, np.generic)) and label.ndim == 0 else label
