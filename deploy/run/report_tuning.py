"""Tables of what could compute each layer, and of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import console

if TYPE_CHECKING:
    from deploy.run.runner import ListedKernel
    from deploy.run.tuning import Layer, Tuned

_SHOWN = 8
_ROWS = 30


def candidates(found: Sequence[ListedKernel], where: str, as_json: bool = False) -> None:
    """Print what could compute each layer."""
    if as_json:
        console.print_json({"where": where, "layers": [kernel.model_dump(mode="json") for kernel in found]})
        return
    rows = []
    for kernel in found:
        others = [each.choice for each in kernel.candidates if each.choice != kernel.choice]
        text = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        rows.append([kernel.layer, kernel.node, kernel.choice, text or "none"])
    console.table(
        f"Kernels on {where}", ["layer", "node", "chosen", "others, the best by estimate first"], rows,
        caption="--json has all",
    )  # fmt: skip


def tuned(value: Tuned, as_json: bool = False) -> None:
    """Print the outcome of ``./inv tune``."""
    if as_json:
        console.print_json(value.model_dump(mode="json"))
        return
    found = value.tuning
    changed = [layer for layer in found.layers if layer.choice != layer.own]
    changed.sort(key=_gained, reverse=True)
    if changed:
        console.table(
            f"{value.program} on {value.device}: layers with other kernels than the engine's own choice",
            ["layer", "node", "own", "µs", "tuned", "µs", "gain"],
            [
                [layer.layer, layer.node, layer.own, f"{layer.own_us:.1f}", layer.choice, f"{layer.tuned_us:.1f}",
                 f"{100 * _gained(layer) / layer.own_us:.0f} %" if layer.own_us else ""]
                for layer in changed[:_ROWS]
            ],
            caption=f"{len(changed)} of {len(found.layers)} layers; --json has all" if not found.already else "",
        )  # fmt: skip
    rows = [["layers", f"{len(changed)} with another kernel"]]
    if found.runs:
        runs = ", ".join(f"{run.threads}: {run.ms:.3f} ms" for run in found.runs if run.samples)
        rows.append(["threads", f"{found.threads}" + (f" ({runs})" if runs else "")])
    if found.own_ms:
        rows.append(["own choice", f"{found.own_ms:.3f} ms"])
        rows.append(["tuned", f"{found.tuned_ms:.3f} ms ({found.tuned_ms / found.own_ms:.3f} of it)"])
    if found.pairs:
        rows.append(["in turns", f"faster in {found.wins} of {found.pairs} turns"])
    rows.append(["outcome", outcome(value)])
    console.table("", ["tuning", ""], rows)


def _gained(layer: Layer) -> float:
    return layer.own_us - layer.tuned_us


def outcome(value: Tuned) -> str:
    """A sentence on what became of it."""
    if value.tuning.already:
        return "measured before, and kept on the device; --again measures anew"
    if value.tuning.kept:
        return f"kept on the device; later deploys take it by themselves (outputs: {value.verdict})"
    return f"nothing is kept: {value.tuning.why}"
