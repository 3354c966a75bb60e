"""``./inv self.prove``: XNNPACK and KleidiAI on every CPU model that runs here."""

from __future__ import annotations

from commands.own import Prove
from core.errors import MismatchError
from verify.prove import prove, table


def run(request: Prove) -> None:
    """Run ``./inv self.prove``.

    Raises:
        MismatchError: XNNPACK computes wrongly.
    """
    with_kernels = not request.quick
    rows = (
        prove.prove_all(with_kernels=with_kernels, again=request.again)
        if request.target == "all"
        else prove.prove(request.target, request.cpu, with_kernels=with_kernels, again=request.again)
    )
    if request.update:
        table.publish(rows)
    table.report(rows, request.json)
    failed = list(prove.failures(rows))
    if failed:
        raise MismatchError(
            "XNNPACK computes wrongly.", "; ".join(failed), "./inv self.prove --target NAME --cpu CPU", failed
        )
