"""The classes that a program sees in its reference's picture: on the device, on the host, and by the float model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import ProgramError
from deploy.run.compare import Comparison
from deploy.run.job import Job
from deploy.run.npy import load
from deploy.run.result import ClassSeen
from deploy.run.runner import OUTPUT

MOST = 5


def seen(job: Job, got: Path, outputs: Sequence[Comparison]) -> dict[str, Any]:
    """``classes`` and ``picture`` of a result; empty if the outputs have no names, or the inputs are the user's.

    Args:
        got: the folder with the device's outputs.
        outputs: their comparisons.

    Raises:
        ProgramError: the names are missing or are something else.
    """
    import numpy as np

    named = job.program.classes if job.program else None
    folder = job.model.source.parent
    if (
        named is None
        or not job.references
        or outputs[0].max_abs is None
        or any(one.source.parent != folder for one in job.inputs)
    ):
        return {}
    try:
        names = json.loads((folder / named.file).read_text(encoding="utf-8"))
        device, host, model = (
            _probabilities(load(file))
            for file in (got / f"{OUTPUT}0.npy", job.references[0], folder / named.scores.file)
        )
        best = np.argsort(-device, kind="stable")[:MOST].tolist()
        rows = [
            ClassSeen(name=str(names[at]), device=float(device[at]), host=float(host[at]), model=float(model[at]))
            for at in best
        ]
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ProgramError(
            f"{folder / named.file} does not name the outputs of {job.name}.",
            str(error),
            "export it again with --force",
        ) from error
    return {"classes": tuple(rows), "picture": named.picture}


def _probabilities(array: tuple[str, Any]) -> Any:
    """The softmax of the first row of scores."""
    import numpy as np

    scores = array[1].reshape(-1, array[1].shape[-1])[0].astype(np.float64)
    with np.errstate(all="ignore"):  # a device may give anything
        powers = np.exp(scores - scores.max())
        return powers / powers.sum()
