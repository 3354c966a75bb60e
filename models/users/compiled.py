"""Compiled parts of torchvision and torchaudio, which the package index has for GPUs only. Imports torch.

Those builds do not load beside the exporter's CPU build of torch. torchvision's `nms` is written here in PyTorch,
`roi_align` is torchvision's own form without compiled code, and torchaudio goes on without its extension, as it does
where that is absent.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


@functools.cache
def serve(folder: Path) -> Any:
    """Make the packages in ``folder`` usable here; what is returned must live as long as they do."""
    if (folder / "torchaudio").is_dir():
        _torchaudio()
    return _torchvision() if (folder / "torchvision").is_dir() else None


def _torchvision() -> Any:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    importlib.import_module("torchvision.ops")
    sys.modules["torchvision.ops.boxes"]._assert_has_ops = lambda: None  # type: ignore[attr-defined]
    for name in ("deform_conv", "ps_roi_align", "ps_roi_pool", "roi_pool"):
        sys.modules[f"torchvision.ops.{name}"]._assert_has_ops = _refusing(f"torchvision's {name}")  # type: ignore[attr-defined]
    # Without compiled code it would compile itself, for which it wants a C++ compiler on this machine.
    own = sys.modules["torchvision.ops.roi_align"]
    own._roi_align = getattr(own._roi_align, "__wrapped__", own._roi_align)  # type: ignore[attr-defined]
    return library


def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """Indices of the boxes that stay, the best score first: none overlaps a better one by more than the threshold.

    Args:
        boxes: ``[N, 4]``, x and y of two corners.
        scores: ``[N]``.
        iou_threshold: of intersection in parts of union.
    """
    import torch

    order = scores.argsort(descending=True, stable=True)
    corners = boxes[order]
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    stays = torch.ones(len(order), dtype=torch.bool)
    for index in range(len(order)):
        if not stays[index]:
            continue
        rest = slice(index + 1, None)
        least = torch.maximum(corners[index, :2], corners[rest, :2])
        most = torch.minimum(corners[index, 2:], corners[rest, 2:])
        common = (most - least).clamp(min=0).prod(1)
        stays[rest] &= common / (areas[index] + areas[rest] - common) <= iou_threshold
    return order[stays]


def _refusing(what: str) -> Any:
    """A function that says that ``what`` is not here."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{what} is compiled, and the package index has that for GPUs only")

    return refuse


def _torchaudio() -> None:
    """Let torchaudio find that its extension is not there."""

    def absent(function: Any) -> Any:
        return functools.wraps(function)(_refusing(f"torchaudio's {function.__name__}"))

    module = ModuleType("torchaudio._extension")
    vars(module).update(_IS_TORCHAUDIO_EXT_AVAILABLE=False, _IS_ALIGN_AVAILABLE=False, fail_if_no_align=absent)
    sys.modules.setdefault(module.__name__, module)
