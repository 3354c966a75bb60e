"""The lab's results in words, for all of its reports."""

from __future__ import annotations

from verify.lab.model import Lab, LabCell, Way


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


def ratio(cell: LabCell) -> str:
    """``0.52 [0.50, 0.55]``."""
    if cell.ratio is None or cell.low is None or cell.high is None:
        return ""
    return f"{cell.ratio:.3f} [{cell.low:.3f}, {cell.high:.3f}]"


def answer(cell: LabCell) -> str:
    """What came out, in words."""
    if cell.outcome == "impossible":
        return "impossible"
    if cell.outcome != "measured":
        return cell.outcome
    if cell.compared:
        return cell.compared
    return "the same kernels" if cell.same_kernels else "other kernels"


def agreement(cell: LabCell) -> str:
    """How both ways' outputs stand to the reference, and to each other."""
    if cell.first is None or cell.second is None:
        return ""
    if cell.first.verdict == cell.second.verdict == "identical":
        return "identical"
    said = [cell.first.verdict] if cell.first.verdict == cell.second.verdict else [way.verdict for way in cell.ways]
    return " / ".join(said) + (", the same bits" if cell.same_outputs else "")


def about(found: Lab) -> str:
    """What was compared and how, in one sentence."""
    return (
        f"Two ways: {found.against}. Ratio: the first way's time in parts of the second's, the median over "
        f"{found.rounds} rounds in turns, with its 99 % interval; {found.threads} thread{'s' * (found.threads != 1)}. "
        "Emulated devices have no times."
    )
