"""Reference outputs of an ``.onnx`` file of the user's own, by PyPI's ONNX Runtime on this machine. No torch."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ExportError, ProgramError
from core.files import new_folder
from models.host import Host
from models.quiet import log_path


@dataclass(frozen=True)
class Reference:
    """What the host computed."""

    outputs: tuple[Path, ...]
    engine: str


def engine(version: str) -> str:
    """What computed the outputs, for reports."""
    return f"onnxruntime {version} (CPU provider, 1 thread, {platform.machine()})"


def run(
    file: Path, folder: Path, *, inputs: Sequence[Path] = (), shapes: str = "", log: Path | None = None
) -> Reference:
    """Run ``file`` on this machine and write its outputs into ``folder`` (made, or replaced) as ``outputN.npy``.

    Args:
        inputs: ``.npy`` files; without them the inputs are ones, as the runner on the device makes them.
        shapes: of those ones, ``1x3x224x224,1x8``; without them the declared ones, where what is not fixed is 1.

    Raises:
        ProgramError: ONNX Runtime refuses the file or fails on it.
        HostError: there is no runtime, or no space.
    """
    with new_folder(folder) as made, Host(log or log_path("host"), "onnx") as host:
        try:
            answer = host.request(
                {
                    "folder": str(made),
                    "file": str(file.absolute()),
                    "inputs": [str(one.absolute()) for one in inputs],
                    "shapes": shapes,
                    "fill": not inputs,
                }
            )
        except ExportError as error:
            raise ProgramError(
                f"{file} does not run on this machine's ONNX Runtime.",
                error.cause,
                "check the file with onnx.checker, or give --expected outputs and inputs of your own",
            ) from error
        names = [one.file for one in host.files(answer, "outputs")]
    return Reference(tuple(folder / name for name in names), engine(answer["version"]))
