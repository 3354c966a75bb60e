"""Give samples to the float model in PyTorch, and write its outputs beside them. Imports torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from core.formats.program import Sample, Samples
from models import loading
from models.loading import reference
from models.lowering import state
from models.request import resolve
from models.samples import reading, taking


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
        found = reading.read(data, examples, most, *taking.pictures_of(request, made.module))
    each = []
    for number, raw in enumerate(found.each):
        tensors = [
            one if not data else torch.from_numpy(array).to(one.dtype)
            for one, array in zip(made.inputs, raw.inputs, strict=True)
        ]
        with made.entered(), state.unchanged(made.module):
            outputs = reference.eager(made.module, tensors)
        inputs = [reference.save(folder, f"sample{number}-input{index}", one) for index, one in enumerate(tensors)]
        wanted = [
            reference.save(
                folder,
                f"sample{number}-float{index}",
                one.float() if one is not None and one.is_floating_point() else one,
            )
            for index, one in enumerate(outputs)
        ]
        each.append(
            Sample(
                tuple(folder / one.file for one in inputs),
                tuple(folder / one.file for one in wanted),
                _plain(raw.label),
                raw.rows,
            )
        )
    return Samples(each, data, found.of)


def _plain(label: object) -> object:
    """An array of one number as that number."""
    return label.item() if isinstance(label, (np.ndarray, np.generic)) and label.ndim == 0 else label
