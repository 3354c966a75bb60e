"""The cache of packed weights on a device: when there is one, and what a result says of it."""

from __future__ import annotations

import pytest

from deploy.run.runner import RunnerResult, parse_result
from deploy.run.weights import load_text


def answer(cache: str) -> RunnerResult:
    weights = f'"weights": {{"bytes": 1, "blocks": 2, "shared": 0, "shared_bytes": 0, "packed": 0{cache}}},'
    return parse_result(
        (
            '{"schema": 1, "engine": {"name": "lean", "version": "1"}, "method": "forward", "load_ms": 0.9,'
            f"{weights}"
            '"latency_ms": {"count": 1, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1}, "peak_rss_bytes": 1,'
            '"threads": 1, "inputs": [], "outputs": []}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("cache", "text"),
    [
        ("", "0.90 ms"),
        (', "cache": {"path": "w", "state": "used", "found": 2, "packing_load_ms": 7.366}',
         "0.90 ms with the weights cache kept on the device, 7.37 ms without"),
        (', "cache": {"path": "w", "state": "made", "why": "there was none"}',
         "0.90 ms; the weights cache for the next load was written (there was none)"),
        (', "cache": {"path": "w", "state": "none", "why": "Cannot write w: No space left on device."}',
         "0.90 ms; no weights cache: Cannot write w: No space left on device."),
        (', "cache": {"path": "w", "state": "used", "found": 0}', "0.90 ms"),
    ],
)  # fmt: skip
def test_what_a_result_says_of_the_load(cache: str, text: str) -> None:
    assert load_text(answer(cache)) == text
