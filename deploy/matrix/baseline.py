"""Compare a matrix with an earlier one: what became worse, better, or cannot be compared.

Times count only if both were measured on a real device with the same processor and governor that did not throttle.
They are worse only if the rounds of both show it beyond chance, the fastest execution is slower as well, and the device
was neither busy nor hotter than before: else nobody can tell. Sizes, errors and the outputs' digests count everywhere.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from core.console.units import duration, size
from core.errors import UsageError
from deploy.matrix.model import CellResult, Change, Output, Round

DEFAULT = 0.10
"""By which fraction a figure may become worse by default."""
_NEGLIGIBLE = 0.05
"""Growth of an error, as a part of the tolerance, that is ignored."""
LEAST_MS = 0.01
"""Milliseconds of difference that are ignored: clocks and the start of a process are no more exact."""
CHANCE = 0.01
"""Probability of a difference by chance below which it is taken for real."""
HOTTER_C = 15.0
"""Degrees by which a device may be warmer than for the baseline."""


def fraction(text: str) -> float:
    """``10%`` or ``10`` as 0.1.

    Raises:
        UsageError: it is not a percentage.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", text)
    if found is None:
        raise UsageError(f"--fail-on-regression {text!r} is not a percentage.", "", "--fail-on-regression 10%")
    return float(found[1]) / 100


def compare(earlier: Sequence[CellResult], cells: Sequence[CellResult], threshold: float) -> tuple[Change, ...]:
    """Every figure of the cells that passed against the earlier one; it may grow by ``threshold``, a fraction."""
    before = {cell.key: cell for cell in earlier if cell.outcome == "passed"}
    changes: list[Change] = []
    for cell in cells:
        if cell.outcome != "passed":
            continue
        old = before.get(cell.key)
        if old is None:
            changes.append(_skipped(cell, "everything", "the baseline does not have this cell"))
        else:
            changes += [_latency(old, cell, threshold), *_others(old, cell, threshold)]
    return tuple(changes)


def _skipped(cell: CellResult, what: str, why: str) -> Change:
    return Change(key=cell.key, what=what, before="", now="", verdict="not compared", why=why)


def _verdict(ratio: float, threshold: float) -> Literal["worse", "better", "same"]:
    return "worse" if ratio > 1 + threshold else "better" if ratio < 1 / (1 + threshold) else "same"


def _ratio(now: float, before: float) -> float:
    return now / before if before > 0 else 1.0 if now <= 0 else float("inf")


def _change(
    cell: CellResult, what: str, before: float, now: float, threshold: float, text: Callable[[float], str]
) -> Change:
    ratio = _ratio(now, before)
    verdict = _verdict(ratio, threshold)
    return Change(key=cell.key, what=what, before=text(before), now=text(now), ratio=ratio, verdict=verdict)


def _latency(old: CellResult, cell: CellResult, threshold: float) -> Change:
    what = "latency p50"
    if old.latency is None or cell.latency is None:
        return _skipped(cell, what, "emulated: its time is not a latency")
    if old.throttled or cell.throttled:
        return _skipped(cell, what, "the device throttled")
    if other := _elsewhere(old, cell):
        return _skipped(cell, what, f"measured {other}")
    if old.governor != cell.governor:
        return _skipped(cell, what, f"measured with the governor {old.governor or 'unknown'}")
    before, after = (
        each.rounds or (Round(p50=times.p50, min=times.min),)
        for each, times in ((old, old.latency), (cell, cell.latency))
    )
    was, now_is = (statistics.median(each.p50 for each in rounds) for rounds in (before, after))
    change = _change(cell, what, was, now_is, threshold, duration)
    verdict, why = _judged(change.verdict, before, after, threshold, cell.threads)
    if verdict != "same" and abs(now_is - was) < LEAST_MS:
        verdict, why = "same", f"less than {LEAST_MS * 1000:g} µs"
    return change.model_copy(update={"verdict": verdict, "why": why})


def _elsewhere(old: CellResult, cell: CellResult) -> str:
    """Where the baseline's cell ran, if that was another processor or another number of threads."""
    same = (old.cpu, old.threads) == (cell.cpu, cell.threads)
    return "" if same else f"on {old.cpu or 'an unknown CPU'} with {old.threads} threads"


def _judged(
    verdict: str, before: Sequence[Round], after: Sequence[Round], threshold: float, threads: int
) -> tuple[str, str]:
    """The verdict that the medians of the rounds allow, and why it is another one."""
    if verdict == "same":
        return verdict, ""
    fastest = [min(each.min for each in rounds) for rounds in (before, after)]
    if verdict == "worse" and _verdict(_ratio(fastest[1], fastest[0]), threshold) != "worse":
        return "same", "the fastest execution is as fast as it was: noise"
    ordered = (before, after) if verdict == "worse" else (after, before)
    chance = larger(*([each.p50 for each in rounds] for rounds in ordered))
    doubt = _doubt(before, after, threads)
    if not doubt and chance >= CHANCE:
        doubt = f"{len(before)} and {len(after)} rounds, and a difference like this comes by chance in {chance:.0%}"
    return ("cannot tell" if verdict == "worse" else "same", doubt) if doubt else (verdict, "")


def _doubt(before: Sequence[Round], after: Sequence[Round], threads: int) -> str:
    """Why the two cannot be compared although their numbers can; empty if nothing is known."""
    # A run of ours keeps its threads busy, and what deploys it one more.
    for when, rounds in (("then", before), ("now", after)):
        load = statistics.median([each.load for each in rounds if each.load is not None] or [0.0])
        if load > max(threads, 1) + 1:
            return f"the device was busy {when}: its load was {load:.1f}"
    warm = [[each.hottest_c for each in rounds if each.hottest_c is not None] for rounds in (before, after)]
    if all(warm) and (hotter := statistics.median(warm[1]) - statistics.median(warm[0])) > HOTTER_C:
        return f"the device was {hotter:.0f} °C hotter"
    return ""


def _others(old: CellResult, cell: CellResult, threshold: float) -> Iterator[Change]:
    """Sizes, and the error and the digest of each output."""
    yield _change(cell, "program size", old.program_bytes, cell.program_bytes, threshold, size)
    yield _change(cell, "bundle size", old.bundle_bytes, cell.bundle_bytes, threshold, size)
    before = {output.name: output for output in old.outputs}
    for output in cell.outputs:
        if output.name in before:
            yield _error(cell, before[output.name], output, threshold)
            yield _digest(old, cell, before[output.name], output)
        else:
            yield _skipped(cell, output.name, "the baseline does not have this output")


def _error(cell: CellResult, old: Output, new: Output, threshold: float) -> Change:
    what = f"error of {new.name}"
    if old.max_abs is None or new.max_abs is None:
        return _skipped(cell, what, "there is no reference")
    change = _change(cell, what, old.max_abs, new.max_abs, threshold, "{:.3g}".format)
    if change.verdict == "worse" and new.max_abs - old.max_abs <= _NEGLIGIBLE * (new.atol or 0.0):
        why = f"grown by less than {_NEGLIGIBLE:.0%} of the tolerance"
        return change.model_copy(update={"verdict": "same", "why": why})
    return change


def _digest(old: CellResult, cell: CellResult, was: Output, new: Output) -> Change:
    what = f"digest of {new.name}"
    if old.program_sha256 != cell.program_sha256:
        return _skipped(cell, what, "it is another program")
    if other := _elsewhere(old, cell):
        return _skipped(cell, what, f"computed {other}")
    same = was.sha256 == new.sha256
    return Change(
        key=cell.key, what=what, before=was.sha256[:12], now=new.sha256[:12], verdict="same" if same else "worse",
        why="" if same else "the same program gives other bits",
    )  # fmt: skip


_EXACT = 20
"""Values of both sets together, up to which all orders are counted; above, the normal approximation."""


def larger(before: Sequence[float], after: Sequence[float]) -> float:
    """Probability that ``after`` ranks as high as it does by chance alone, if both came from one source.

    One-sided; ties count half. Small when ``after`` is larger. 1.0 if one of them is empty.
    """
    few, many = len(before), len(after)
    if not few or not many:
        return 1.0
    wins = sum((new > old) + 0.5 * (new == old) for new in after for old in before)
    if few + many <= _EXACT:
        counts = [_orders(few, many, total) for total in range(few * many + 1)]
        return sum(counts[math.ceil(wins - 0.5) :]) / sum(counts)
    spread = math.sqrt(few * many * (few + many + 1) / 12)
    return 0.5 * math.erfc((wins - few * many / 2 - 0.5) / spread / math.sqrt(2))


@functools.cache
def _orders(few: int, many: int, wins: int) -> int:
    """In how many orders of ``few`` and ``many`` values the second win ``wins`` of all comparisons."""
    if wins < 0:
        return 0
    if few == 0 or many == 0:
        return int(wins == 0)
    # The largest value is one of the second set, which wins against all of the first, or one of the first.
    return _orders(few, many - 1, wins - few) + _orders(few - 1, many, wins)
