"""What ``./inv models`` and ``./inv export`` print."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import console
from core.console.units import size

if TYPE_CHECKING:
    from core.formats.program import Operator, Program
    from models.request import Row


def zoo(as_json: bool, languages: Sequence[Mapping[str, Any]]) -> None:
    """The zoo: a row for each model and format; as JSON an object for each scheme, too.

    Args:
        languages: the language models, as `models.text.source.listing` gives them.
    """
    from models.request import listing
    from models.zoo import load_zoo
    from models.zoo.schemes import load_type_names, type_of
    from models.zoo.trained import load_trained

    rows, names = listing(), load_type_names()
    weights = {model: row.described(model) for model, row in load_trained().items()}
    if as_json:
        described, arms = load_zoo(), {name: dataclasses.asdict(row) for name, row in names.items()}
        console.print_json(
            [
                {
                    **dataclasses.asdict(row),
                    "description": described[row.model].description,
                    "trained": weights.get(row.model),
                    "arms_name": arms.get(type_of(row.scheme)),
                }
                for row in rows
            ]
            + list(languages)
        )
        return
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.model, row.format), []).append(row)
    console.table(
        "The model zoo",
        ["model", "format", "schemes", "exported", "what it is"],
        [
            [model, format_, ", ".join(row.scheme for row in some), ", ".join(_exported(some)), some[0].title]
            for (model, format_), some in lines.items()
        ],
        caption="Export one with ./inv export --model NAME --scheme SCHEME",
        optional=("what it is",),
    )
    console.table(
        "Language models",
        ["model", "schemes", "exported", "what it is"],
        [[one["model"], ", ".join(one["schemes"]), ", ".join(one["exported"]), one["title"]] for one in languages],
        caption='Talk with one by ./inv chat --model NAME, or ask it once: ./inv deploy --model NAME --prompt "..."',
        optional=("what it is",),
    )
    console.table(
        "Trained weights",
        ["model", "file", "SHA-256", "here", "get them with"],
        [
            [model, one["file"], one["sha256"], "yes" if one["here"] else "no", one["get"]]
            for model, one in {**weights, **{each["model"]: each["trained"] for each in languages}}.items()
        ],
        caption="The other models are small ones of Slipway's own: nobody trained them, and their weights are random",
        optional=("SHA-256", "here"),
    )
    console.table(
        "Arm's names, which --scheme takes too",
        ["name", "scheme", "activations", "weights", "output", "layers with a kernel of KleidiAI's"],
        [[t.name, t.scheme, t.activations, t.weights, t.output, t.layers] for t in names.values()],
        optional=("output", "activations", "weights"),
    )


def _exported(rows: Sequence[Row]) -> list[str]:
    """``fp32 (14 MB)`` for each program that is there; an outdated one says so."""
    return [
        f"{row.scheme} ({size(row.size)}{', outdated' if row.state == 'outdated' else ''})" for row in rows if row.size
    ]


def _operators(found: Sequence[Operator]) -> list[list[str]]:
    return [[one.name, str(one.count), one.why] for one in found]


def programs(folders: Sequence[Path], as_json: bool) -> None:
    """The results of exports: one table for several programs, all details for a single one."""
    from core.formats.program import load_program

    found = [(folder, load_program(folder, verify=False)) for folder in folders]
    if as_json:
        rows = [
            {"path": str(folder), "taken": _taken(program), **program.model_dump(mode="json")}
            for folder, program in found
        ]
        console.print_json(rows[0] if len(rows) == 1 else rows)
    elif len(found) == 1:
        _whole(*found[0])
    else:
        console.table(
            "Programs",
            ["program", "size", "backends", "delegate calls", "operators in them", "warnings"],
            [
                [
                    program.name,
                    f"{program.size / 1e6:.2f} MB",
                    ", ".join(one.removesuffix("Backend") for one in program.backends) or _nobody(program),
                    str(program.delegates or ""),
                    "{operators} of {of} ({share:.0%})".format(**_taken(program)) if program.format == "pte" else "",
                    str(len(program.warnings) or ""),
                ]
                for _, program in found
            ],
        )


def _taken(program: Program) -> dict[str, float]:
    """How many of the program's operators its backends took."""
    taken, left = (sum(one.count for one in some) for some in (program.delegated, program.undelegated))
    return {"operators": taken, "of": taken + left, "share": taken / max(taken + left, 1)}


def _nobody(program: Program) -> str:
    """Who decides on backends if the program names none."""
    return "none" if program.format == "pte" else "ONNX Runtime's, chosen when it is loaded"


def _samples(program: Program) -> list[list[str]]:
    """What it was calibrated with and checked on, and how often it is right."""
    found = program.accuracy
    if found is None:
        return []
    rows = [["samples", f"{found.source}: {found.calibrated} to calibrate with, {found.checked} others to check on"]]
    if found.same is not None:
        rows.append(["same class", f"as the float model in {found.same:.1%} of them"])
    if found.float_top1 is not None and found.top1 is not None:
        text = f"{found.top1:.1%} of {found.labelled}; the float model {found.float_top1:.1%}"
        rows.append(["top-1", text])
    return rows


def _delegated(program: Program) -> list[list[str]]:
    inside = ", ".join(f"{one.name} ×{one.count}" for one in program.delegated)
    return [["delegate calls", str(program.delegates)], ["delegated", inside or "nothing"]]


def _whole(folder: Path, program: Program) -> None:
    console.table(
        f"Program {program.name}",
        ["", ""],
        [
            ["folder", console.shown(folder)],
            ["size", f"{program.size / 1e6:.2f} MB"],
            ["backends", ", ".join(program.backends) or _nobody(program)],
            *(_delegated(program) if program.format == "pte" else ()),
            ["reference", program.reference_engine],
            *_samples(program),
            ["warnings", "\n".join(program.warnings) or "none"],
        ],
    )
    if program.undelegated:
        console.table("Outside the delegates", ["operator", "count", "why"], _operators(program.undelegated))
