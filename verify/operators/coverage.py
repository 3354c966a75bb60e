"""Which of upstream's operators the lean engine has, and which tests exercise each.

``python -m verify.operators.coverage`` looks, and writes what it finds into ``docs/lean.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.run.needs import COMPLEX
from verify.tables import Row, Table, table_of_rows

OPERATORS = Table("docs/lean.md", "coverage")

_COMPLEX = "complex numbers, which the engine has no kernels for; the engine executorch runs them"
_LANGUAGE = "recurrent layers, mixtures of experts and tiles of pictures, which the engine has no kernels for yet"
NOT_COVERED = dict.fromkeys(COMPLEX, _COMPLEX) | dict.fromkeys(
    (
        "llama::channelwise_gated_delta_rule.out",
        "llama::gated_delta_rule.out",
        "llama::quantized_moe_ffn.out",
        "preprocess::tile_crop.out",
    ),
    _LANGUAGE,
)
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


def upstreams() -> list[str]:
    """What upstream's runtime registers, by the names of kernels; also the quantized ones and language models'."""
    import importlib

    from executorch.runtime import Runtime

    for module in ("executorch.kernels.quantized", "executorch.extension.llm.custom_ops.custom_ops"):
        importlib.import_module(module)
    return sorted(Runtime.get().operator_registry.operator_names)


def exercised() -> dict[str, str]:
    """Kernel -> the group that exercises it."""
    from verify.operators import draws, written
    from verify.sound import runtime

    found: dict[str, str] = {}
    sources: list[tuple[str, Iterable[str]]] = [
        *((family, draws.makers(family)) for family in draws.FAMILIES),
        *((make.__name__, make().operators) for make in (written.numbers, written.calls, written.chance)),
        ("programs", [name for names in runtime.KERNELS.values() for name in names]),
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


def rows(seen: dict[str, Any]) -> list[Row]:
    """The table of ``docs/lean.md``: a row for each way of testing, one for what is missing and one for more."""
    kernels, upstream = seen["kernels"], seen["upstream"]
    found = [
        (f"yes, {title}", [name for name in upstream if kernels.get(name) == group]) for group, title in GROUPS.items()
    ]
    found += [
        (f"no: {why}", [name for name in upstream if NOT_COVERED.get(name) == why])
        for why in dict.fromkeys(NOT_COVERED.values())
    ]
    found.append(("lean alone", sorted(set(kernels) - set(upstream))))
    return [
        {"kernel, and its test": kind, "count": str(len(names)), "operators": ", ".join(f"`{name}`" for name in names)}
        for kind, names in found
    ]


def main() -> None:
    """Look, and keep what was found."""
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    seen = look(build(host_target().name, "lean").manifest.offers.operators)
    has = f"ExecuTorch {seen['version']} has {len(seen['upstream'])}"
    about = f"{has}, with its quantized kernels and those for language models.\n"
    OPERATORS.write(f"{about}\n{table_of_rows(rows(seen))}")


if __name__ == "__main__":
    main()
