"""``./inv self.bench``: what ``--what`` names."""

from __future__ import annotations

from commands.own import Bench
from core.cli.request import words


def run(request: Bench) -> None:
    """Measure, and print the figures."""
    runs, as_json, update = request.runs, request.json, request.update
    if request.what == "transfers":
        from verify.bench.transfer import report

        report(request.device, runs, as_json, update)
    elif request.what == "operators":
        from verify.bench.operators import run as run_operators

        run_operators(runs, words(request.only), as_json, update)
    elif request.what == "forward":
        from verify.bench.forward import run as run_forward

        run_forward(runs, as_json, update)
    else:
        from verify.nets.report import run as run_nets

        run_nets(runs, request.only, request.again, as_json, update)
