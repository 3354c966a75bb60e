"""The lab's results in words, for all of its reports."""

from __future__ import annotations

from verify.layers.model import Lab, LayerCell, Peak, Way


def short(kernel: str) -> str:
    """A kernel's name without what all of a library's have."""
    for prefix in ("kai_run_matmul_clamp_", "kai_run_", "xnn_", "slipway_"):
        kernel = kernel.removeprefix(prefix)
    return kernel.replace("_ukernel", "").replace("_minmax", "")


def kernels(way: Way | None) -> str:
    """The kernels of a way, each once, with KleidiAI's marked."""
    used = way.kernels if way else ()
    names = dict.fromkeys(
        ("KleidiAI " if one.library == "KleidiAI" else "") + short(one.kernel or one.node) for one in used
    )
    return ", ".join(names)


def ratio(cell: LayerCell) -> str:
    """``0.52 [0.50, 0.55]``."""
    if cell.ratio is None or cell.low is None or cell.high is None:
        return ""
    return f"{cell.ratio:.3f} [{cell.low:.3f}, {cell.high:.3f}]"


def executed(way: Way | None) -> str:
    """``12,345``: instructions of an execution, the least that was counted."""
    if way is None or way.instructions is None:
        return ""
    return f"{way.instructions.least:,}"


def answer(cell: LayerCell) -> str:
    """What came out, in words."""
    if cell.outcome == "impossible":
        return "impossible"
    if cell.outcome != "measured":
        return cell.outcome
    if cell.differing:
        return "differs"
    if cell.compared:
        return cell.compared
    return "the same kernels" if cell.same_kernels else "other kernels"


def why(cell: LayerCell) -> str:
    """What stood in the way of an answer; empty if nothing did."""
    if cell.differing:
        return f"outputs of {' and '.join(way.name for way in cell.differing)} differ from the reference"
    return cell.why_not or (cell.problem.what if cell.problem else "")


def agreement(cell: LayerCell) -> str:
    """How both ways' outputs stand to the reference, and to each other."""
    if cell.first is None or cell.second is None:
        return ""
    if cell.first.verdict == cell.second.verdict == "identical":
        return "identical"
    said = [cell.first.verdict] if cell.first.verdict == cell.second.verdict else [way.verdict for way in cell.ways]
    return " / ".join(said) + (", the same bits" if cell.same_outputs else "")


def peak(point: Peak) -> str:
    """``2 threads 250 GFLOP/s (avx512f), 31 GB/s``."""
    threads = f"{point.threads} thread{'s' * (point.threads != 1)}"
    return f"{threads} {point.gflops:.3g} GFLOP/s ({point.feature}), {point.gbytes_per_s:.3g} GB/s"


def speed(cell: LayerCell, way: Way, most: Peak | None) -> str:
    """``63 GFLOP/s (50 % of the peak), 4.1 GB/s (14 % of the peak)``; in float32 alone the first has a peak."""
    if way.gflops is None or way.gbytes_per_s is None:
        return ""
    limits = (most.gflops if most and cell.scheme == "fp32" else 0.0, most.gbytes_per_s if most else 0.0)
    return ", ".join(
        f"{value:.3g} {unit}" + (f" ({100 * value / limit:.0f} % of the peak)" if limit else "")
        for value, unit, limit in zip((way.gflops, way.gbytes_per_s), ("GFLOP/s", "GB/s"), limits, strict=True)
    )


def about(found: Lab) -> str:
    """What was compared and how, in one sentence."""
    return (
        f"Two ways: {found.against}. Ratio: the first way's time in parts of the second's, the median over "
        f"{found.rounds} rounds in turns, with its 99 % interval; {found.threads} thread{'s' * (found.threads != 1)}. "
        "Emulated devices have no times"
        + (
            ": there the instructions of user mode are counted, and the execution with the least of them is the "
            "program's own work. Instructions are not time: one may do the work of many."
            if found.counted
            else "."
        )
    )
