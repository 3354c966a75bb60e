"""What a lab measured, as its reports read it."""

from __future__ import annotations

from deploy.run.runner import ProfileRow
from verify.layers.model import Lab, LayerCell, Peak, Used, Way
from verify.layers.operators import matched


def way(name: str, kernel: str, p50: float | None) -> Way:
    timed = {} if p50 is None else {
        "p10": p50 * 0.9, "p50": p50, "p90": p50 * 1.2, "load_ms": 1.0, "processes": (p50,) * 5, "executions": 9,
        "spread": 0.3,
        "gflops": 3.0, "gbytes_per_s": 2.0,
    }  # fmt: skip
    return Way.model_validate(
        {"name": name, "engine": "lean", "verdict": "agrees", "known_from": "the engine", **timed,
         "kernels": (Used(node="n", kernel=kernel, library="KleidiAI" if "kai" in kernel else "XNNPACK"),)}
    )  # fmt: skip


def profile(operator: str, *ms: float) -> ProfileRow:
    low, middle, high = ms
    return ProfileRow(
        name=f"{operator} #1 @0", operator=operator, provider="XnnpackBackend", count=50, total_ms=50 * middle,
        p10_ms=low, p50_ms=middle, p90_ms=high,
    )  # fmt: skip


FIRST = (profile("Fully Connected (NC, PF32) GEMM", 0.2, 0.3, 0.5), profile("Clamp (NC)", 0.1, 0.1, 0.1))
SECOND = (
    profile("Fully Connected (NC, F32) GEMM", 0.5, 0.6, 0.7),
    profile("Copy (NC)", 0, 0, 0),
    ProfileRow(name="Method::execute", operator="around", provider="runtime", count=50, total_ms=1, p10_ms=1, p50_ms=1,
               p90_ms=1),
)  # fmt: skip


def lab(*, emulated: bool) -> Lab:
    timed = (
        {}
        if emulated
        else {
            "ratio": 0.5,
            "low": 0.4,
            "high": 0.6,
            "p": 0.008,
            "compared": "faster",
            "operators": matched(FIRST, SECOND),
        }
    )
    times = (None, None) if emulated else (0.5, 1.0)
    measured = {
        "key": "a/linear-fp32", "device": "<b>pi", "emulated": emulated, "target": "linux-arm64", "layer": "linear",
        "scheme": "fp32", "type": "pf32", "outcome": "measured",
        "first": way("KleidiAI", "kai_run_matmul_clamp_f32_x", times[0]),
        "second": way("without KleidiAI", "xnn_f32_gemm_minmax_ukernel_6x8__neon", times[1]), **timed,
    }  # fmt: skip
    impossible = {
        **measured,
        "key": "b",
        "outcome": "impossible",
        "why_not": "no such thing",
        "first": None,
        "second": None,
    }
    for name in timed:
        impossible[name] = {"compared": "", "operators": ()}.get(name)
    return Lab(
        name="x", created="now", finished="later", against="with, and without", rounds=5, threads=1,
        peaks={} if emulated else {"<b>pi": (
            Peak(threads=1, feature="neon", gflops=9.0, gbytes_per_s=4.0),
            Peak(threads=4, feature="neon", gflops=36.0, gbytes_per_s=5.0),
        )},
        cells=(LayerCell.model_validate(measured), LayerCell.model_validate(impossible)),
    )  # fmt: skip
