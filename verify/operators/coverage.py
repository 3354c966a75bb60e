"""Which of upstream's operators the lean engine has, and which tests exercise each.

``python -m verify.operators.coverage`` looks; what is found is kept in ``docs/data/operators.json``, from which
``docs/operators.md`` is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core.files import write_json
from core.paths import ROOT
from deploy.run.needs import COMPLEX

KEPT = ROOT / "docs" / "data" / "operators.json"

_COMPLEX = "complex numbers, which the engine has no kernels for; the engine executorch runs them"
NOT_COVERED = dict.fromkeys(COMPLEX, _COMPLEX)
"""Upstream's operators without a kernel here, and why."""

GROUPS = {
    "elementwise": "drawn: element by element",
    "lines": "drawn: along dimensions",
    "shapes": "drawn: elements moved or made",
    "images": "drawn: images, quantized",
    "numbers": "written: numbers",
    "calls": "written: calls",
    "chance": "written: chance",
    "programs": "programs",
}
"""Where kernels are exercised, as the table names it."""

HEAD = """# Portable operators

This page lists every operator that upstream's runtime registers (ExecuTorch {version}: {count}, with its quantized
kernels), and whether the lean engine ([lean.md](lean.md)) has a kernel for it. A kernel without a test fails the tests.
The last column says how it is tested:

- `drawn`: hypothesis draws shapes, element types and broadcasts; upstream's exporter makes the program; ATen's result
  is the reference (`verify/operators/batches.py`).
- `written`: upstream's serializer writes a program that calls the operator, because no export calls it
  (`verify/operators/written.py`).
- `programs`: `verify/operators/programs.py`.

"""


def upstreams() -> list[str]:
    """What upstream's runtime registers, by the names of kernels; its version's quantized ones too."""
    import importlib

    from executorch.runtime import Runtime

    importlib.import_module("executorch.kernels.quantized")
    return sorted(Runtime.get().operator_registry.operator_names)


def exercised() -> dict[str, str]:
    """Kernel -> the group that exercises it."""
    from verify.operators import batches as operator_batches
    from verify.operators import programs, written

    found: dict[str, str] = {}
    sources: list[tuple[str, Iterable[str]]] = [
        *((family, operator_batches.makers(family)) for family in operator_batches.FAMILIES),
        ("numbers", written.numbers().operators),
        ("calls", written.calls().operators),
        ("chance", written.chance().operators),
        ("programs", [name for names in programs.KERNELS.values() for name in names]),
    ]
    for group, names in sources:
        for name in names:
            found.setdefault(name, group)
    return found


def look(kernels: Iterable[str]) -> dict[str, Any]:
    """The whole table for a bundle that has ``kernels``."""
    from models.request import versions

    groups, have = exercised(), set(kernels)
    return {
        "version": versions()["executorch"],
        "upstream": upstreams(),
        "kernels": {name: groups.get(name, "") for name in sorted(have)},
    }


def kept() -> dict[str, Any]:
    """What was found last."""
    value: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return value


def markdown() -> str:
    """``docs/operators.md``."""
    seen = kept()
    kernels, upstream = seen["kernels"], seen["upstream"]
    text = HEAD.format(version=seen["version"], count=len(upstream))
    covered = sum(name in kernels for name in upstream)
    extra = sorted(set(kernels) - set(upstream))
    text += f"The engine has kernels for {covered} of {len(upstream)} operators, and {len(extra)} more kernels: "
    text += ", ".join(f"`{name}`" for name in extra) + ".\n\n| operator | kernel | tested by |\n|---|---|---|\n"
    for name in upstream:
        cell = f"yes | {GROUPS[kernels[name]]}" if name in kernels else f"no: {NOT_COVERED[name]} | "
        text += f"| `{name}` | {cell} |\n"
    return text


def main() -> None:
    """Look, and keep what was found."""
    from toolchains.build.builder import build
    from toolchains.targets import host_target

    write_json(KEPT, look(build(host_target().name, "lean").manifest.offers.operators))


if __name__ == "__main__":
    main()
