"""Kernels from the names of a profile: whose they are, and that nothing more is claimed."""

from __future__ import annotations

import pytest

from deploy.run.runner import ProfileRow, RunnerResult, completed, named_kernels


def row(name: str) -> ProfileRow:
    return ProfileRow(name=name, operator=name, provider="XnnpackBackend", count=1, total_ms=1.0)


@pytest.mark.parametrize(
    "name",
    ["DELEGATE_CALL @0", "Convert (NC) #1 @0", "Transpose (ND, X8) #1 @0", "Method::execute", "aten::add.out @2"],
)
def test_other_rows_name_no_kernel(name: str) -> None:
    assert named_kernels([row(name)]) == ()


def test_a_result_without_kernels_is_completed() -> None:
    base = {
        "engine": {"name": "executorch", "version": "1"}, "method": "forward", "load_ms": 1,
        "latency_ms": {"count": 1, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1}, "peak_rss_bytes": 1,
        "threads": 1, "inputs": [], "outputs": [], "profile": [row("Fully Connected (NC, PF32) GEMM #1 @0")],
    }  # fmt: skip
    (found,) = completed(RunnerResult.model_validate(base)).kernels
    assert found.library == "KleidiAI"
    own = {"node": "a", "kernel": "b", "library": "XNNPACK", "feature": "scalar"}
    (kept,) = completed(RunnerResult.model_validate({**base, "kernels": [own]})).kernels
    assert (kept.kernel, kept.known) == ("b", "")
