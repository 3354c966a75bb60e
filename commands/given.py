"""What the words of a command name: programs, bundles, lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core.cli.task import Words
from core.errors import UsageError
from core.formats.bundle import Bundle
from core.formats.program import FORMATS

if TYPE_CHECKING:
    from models.request import Request


def list_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list."""
    from models.request.options import words

    return words(text)


def program_of(words: Words) -> Path | None:
    """The program file or folder; ``None`` for a model of the zoo or of the user's own.

    Raises:
        UsageError: words that do not go together.
    """
    model = str(words["model"])
    program = words["program"] or (model if Path(model).suffix.lower() in FORMATS else "")
    if program:
        if words.get("samples"):
            raise UsageError(
                "--samples does not go with a program.",
                "it was exported already, and calibrated then",
                "./inv export --samples FOLDER",
            )
        return Path(program)
    if any(words.get(name) for name in ("inputs", "input_shapes", "expected", "data")):
        raise UsageError(
            "--inputs, --input-shapes, --expected and --data go with --program.",
            "a model of the zoo brings its own inputs and reference",
            "./inv deploy --program file.pte --inputs a.npy",
        )
    if "all" in (model, words["scheme"]):
        raise UsageError("A deploy runs one program, not all.", "", "./inv matrix --models NAMES --schemes all")
    return None


def options_of(words: Words) -> dict[str, str]:
    """The export options of ``--options`` and ``--samples``.

    Raises:
        UsageError: as `models.request.options.pairs`, or samples for a program that is exported already.
    """
    from models.request.options import pairs

    options, samples = pairs(words.get("options") or ""), words.get("samples")
    return {**options, "samples": str(samples)} if samples else options


def check_model(words: Words, format: str) -> list[Request]:  # noqa: A002
    """Refuse an unknown model, scheme or option now: a build may take minutes. Returns what is to be exported.

    Raises:
        ConfigError, ExportError: as `models.request.resolve`.
    """
    from models.request import resolve
    from models.request.options import words as names
    from models.zoo import combinations

    partitioners, options = names(str(words.get("partitioners") or "")), options_of(words)
    return [
        resolve(model, scheme, partitioners=partitioners, options=options, format=format)
        for model, scheme in combinations(words["model"], words["scheme"], format)
    ]


def build_for(target: str, engine: str, toolchain: str) -> Bundle:
    """The bundle, built if need be."""
    from toolchains.bundle.builder import build

    return build(target, engine, toolchain)
