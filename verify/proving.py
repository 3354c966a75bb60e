"""``./inv self.prove``: XNNPACK and KleidiAI on every CPU model that runs here."""

from __future__ import annotations

from core.cli.task import Words
from core.errors import MismatchError, UsageError
from verify.prove import prove, table


def run(words: Words) -> None:
    """Run ``./inv self.prove``.

    Raises:
        MismatchError: XNNPACK computes wrongly. UsageError: words that contradict each other.
    """
    everything, cpu, again = words["all"], words["cpu"], words["again"]
    if everything and (words.given["target"] or cpu):
        raise UsageError("--all cannot be used with --target or --cpu.", "", "./inv self.prove --all")
    with_kernels = not words["quick"]
    rows = (
        prove.prove_all(with_kernels=with_kernels, again=again)
        if everything
        else prove.prove(words["target"], cpu, with_kernels=with_kernels, again=again)
    )
    if words["docs"]:
        table.publish(rows)
    table.report(rows, words["json"])
    failed = list(prove.failures(rows))
    if failed:
        raise MismatchError(
            "XNNPACK computes wrongly.", "; ".join(failed), "./inv self.prove --target NAME --cpu CPU", failed
        )
