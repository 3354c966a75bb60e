"""Kernels by CPU: KleidiAI's on processors that have what they want, and those of a lesser CPU on the same one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.formats.bundle import RUNNER
from core.paths import ROOT
from models.export import export
from tests.support.builds import made_by
from tests.support.processes import ran, well
from toolchains.bundle import builder
from toolchains.emulation.platforms import platform_for
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]


def run(runner: Path, program: Path, folder: Path, *flags: str) -> dict[str, Any]:
    words = [f"--model_path={program / 'model.pte'}", f"--inputs={program / 'input0.npy'}"]
    words += [f"--output_file={folder / 'out'}", "--json", "--cpu_threads=1", *flags]
    done = ran([runner, *words], timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0 or "error" in found, done.stderr
    return found


def features(result: dict[str, Any]) -> set[str]:
    return {use["feature"] for use in result["kernels"]}


def test_the_roofline_is_what_a_machine_can_compute(lean_runner: Path) -> None:
    def measure(*flags: str) -> str:
        return well(ran([lean_runner, "--roofline", *flags], timeout=60)).stdout

    found = json.loads(measure("--cpu_threads=2"))
    one, two = found["roofline"]
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    feature = "avx512f" if "avx512f" in flags else "avx2" if {"avx2", "fma"} <= set(flags) else "sse2"
    assert [(point["threads"], point["feature"]) for point in (one, two)] == [(1, feature), (2, feature)]
    # No core has more than two units for 16 products with their sums, nor 6 GHz: more means that work was left out.
    for point in (one, two):
        assert 1 < point["gflops"] < 2 * 2 * 16 * 6 * point["threads"]
        assert 0.1 < point["gbytes_per_s"] < 1000
    assert found["buffer_bytes"] >= 16 << 20
    (alone,) = json.loads(measure("--cpu_threads=1"))["roofline"]
    assert alone["feature"] == feature


def test_a_lesser_x86_cpu_chooses_lesser_kernels(lean_runner: Path, program: Path, tmp_path: Path) -> None:
    want = numpy.load(program / "output0.npy")
    seen = []
    for flag, unused, wide in (
        ("", "", {"avx512f", "avx2", "fma3", "avx", "sse"}),
        ("--cpu_features=-avx512f", "avx512f", {"avx2", "fma3", "avx", "sse"}),
        ("--cpu_features=-avx2", "avx2", {"fma3", "avx", "sse"}),
        ("--cpu_features=-fma", "fma", {"avx", "sse"}),
        ("--cpu_features=-avx", "avx", {"sse"}),
        ("--cpu_features=-ssse3", "sse4_1", {"sse"}),
    ):
        result = run(lean_runner, program, tmp_path, *([flag] if flag else []))
        left = result["settings"].get("cpu_features_unused", "").split(",")
        absent = result["settings"].get("cpu_features_absent", "").split(",")
        assert not flag or {unused, flag.partition("=-")[2]} <= {*left, *absent}
        assert features(result) <= wide
        seen.append({use["kernel"] for use in result["kernels"]})
        assert numpy.allclose(numpy.load(tmp_path / "out0.npy"), want, rtol=1e-5, atol=1e-5)
    assert seen[0] != seen[4], "SSE runs other kernels than all that this machine has"


@pytest.mark.parametrize(
    ("flag", "kernels"),
    [
        ("-avx512_vnni", {"slipway_qd8_f32_qb4w_gemm_6x16c4__avx2"}),
        ("-avx512f", {"slipway_qd8_f32_qb4w_gemm_6x16c4__avx2"}),
        ("-avx2", {"xnn_qd8_f32_qb4w_gemm_minmax_ukernel_4x4c8__avx_ld128"}),
    ],
)
def test_int4_without_vnni_runs_on_our_kernels(lean_runner: Path, tmp_path: Path, flag: str, kernels: set[str]) -> None:
    """With AVX-512 too: XNNPACK has kernels for AVX2 and for AVX-512 with VNNI, and none between them."""
    program = export("mlp", "qd8_qb4w")
    result = run(lean_runner, program, tmp_path, f"--cpu_features={flag}")
    assert {use["kernel"] for use in result["kernels"]} == kernels
    want = numpy.load(program / "output0.npy")
    assert numpy.allclose(numpy.load(tmp_path / "out0.npy"), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--kleidiai=on", "built without KleidiAI"),
        ("--kleidiai=maybe", "cannot be 'maybe'"),
        ("--cpu_features=-avx513f", "avx2, avx_vnni, avx_vnni_int8, avx512f"),
        ("--cpu_features=avx2", "a minus before each"),
    ],
)
def test_words_are_strict(lean_runner: Path, program: Path, tmp_path: Path, flag: str, said: str) -> None:
    error = run(lean_runner, program, tmp_path, flag)["error"]
    assert error["kind"] == "usage"
    assert said in error["message"] + error["fix"]


def test_each_choice_has_its_own_packed_weights(lean_runner: Path, program: Path, tmp_path: Path) -> None:
    """A cache that another choice left is not used; that would compute with weights packed for other kernels."""
    cache = f"--weights_cache={tmp_path / 'weights'}"
    # The program's own file must be old enough for its times to vouch for it.
    for flag in ("", "--cpu_features=-avx", ""):
        flags = [flag] if flag else []
        states = [run(lean_runner, program, tmp_path, cache, *flags)["weights"]["cache"] for _ in range(2)]
        assert [state["state"] for state in states] == ["made", "used"]
        assert not flag or states[0]["why"].startswith("it was made for another processor")


ARM = "linux-arm64"


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with layers that KleidiAI has kernels for."""
    return made_by(ROOT / "tests/support/kleidiai_layers.py")


def arm(programs: Path, name: str, cpu: str, *words: str) -> dict[str, Any]:
    """What the runner says of a program on a CPU model under QEMU."""
    runner = builder.build(ARM, "lean").path / RUNNER
    argv = ["--json", f"--model_path={programs / name}.pte", *words]
    done = platform_for(get_target(ARM), cpu).run(runner, argv, timeout=300)
    assert done.returncode == 0, f"{name} on {cpu}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def given(programs: Path, name: str, folder: Path) -> tuple[str, str]:
    """The flags of a program's inputs, and of its outputs as out0.npy and so on in ``folder``."""
    inputs = sorted(programs.glob(f"{name}.in*.npy"))
    return f"--inputs={','.join(map(str, inputs))}", f"--output_file={folder / 'out'}"


@pytest.mark.parametrize(("name", "tolerance"), [("qc8w-21", 5e-3), ("qc4w", 5e-3), ("f32", 1e-5)])
def test_kleidiai_can_be_switched_off(name: str, tolerance: float, programs: Path, tmp_path: Path) -> None:
    """XNNPACK's own kernels then, and the same numbers: of kernels that the engine calls, and that XNNPACK does."""
    outputs = []
    for word, library in (("on", "KleidiAI"), ("off", "XNNPACK")):
        flags = (*given(programs, name, tmp_path), "--cpu_threads=1", f"--kleidiai={word}")
        result = arm(programs, name, "sme2", *flags)
        assert {use["library"] for use in result["kernels"]} == {library}
        assert result["settings"]["kleidiai"] == word
        outputs.append(numpy.load(tmp_path / "out0.npy").astype(numpy.float64))
    allowed = tolerance * max(1.0, float(numpy.ptp(outputs[0])))
    assert numpy.abs(outputs[0] - outputs[1]).max() <= allowed


DOTPROD, I8MM, NEON, SME, SME2 = "_neon_dotprod", "_neon_i8mm", "_neon_mla", "_sme_", "_sme2_"
XNNPACKS = ""
EXPECTED = {
    "qc8w-21": {"cortex-a53": XNNPACKS, "cortex-a76": DOTPROD, "max": I8MM, "sme2": SME2},
    "qc8w-1": {"cortex-a76": DOTPROD, "max": DOTPROD, "sme2": SME2},
    "qd8-pixel": {"cortex-a76": DOTPROD, "sme2": SME2},
    "qd8-image": {"sme2": SME2},  # each point by itself, as upstream's engine does
    "f16": {"cortex-a53": XNNPACKS, "cortex-a76": NEON, "sme2": SME2},
    "f32": {"cortex-a76": XNNPACKS, "max": SME, "sme2": SME2},
    "f32-kinds": {"sme2": SME2},
    "f32-windows": {"max": SME, "sme2": SME2},
    "f16-windows": {"cortex-a76": XNNPACKS, "max": SME, "sme2": SME2},
    "qs8-windows": {"cortex-a76": XNNPACKS, "max": SME, "sme2": SME2},
    "f32-given": {"max": SME, "sme2": SME2},
    "f16-given": {"cortex-a76": NEON, "max": SME, "sme2": SME2},
    "qs8": {"cortex-a76": XNNPACKS, "max": SME, "sme2": SME2},
    # Kernels that XNNPACK calls; the others the engine calls itself.
    "qc4w": {"cortex-a53": XNNPACKS, "cortex-a76": DOTPROD, "max": I8MM},
    "qb4w": {"cortex-a76": DOTPROD, "max": I8MM},
}
"""Of each program, what is in the names of the kernels of KleidiAI's that compute all of its layers on a CPU."""
LAYERS = {
    "f16": 7, "f32-kinds": 7, "f16-windows": 4, "f32-windows": 4, "f16-given": 3, "f32-given": 3,
    "qs8": 5, "qs8-windows": 4, "qd8-pixel": 1, "qd8-image": 1,
}  # fmt: skip
TOLERANCES = {
    **dict.fromkeys(("f16", "f16-windows", "f16-given"), 2**-7),
    **dict.fromkeys(("f32", "f32-kinds", "f32-windows", "f32-given"), 1e-6),
    "qs8": 0.0, "qs8-windows": 0.0, "qd8-image": 1 / 127,
}  # fmt: skip
"""Of the output's spread. Static int8 is the same bits; float16: eight roundings. Where the graph quantizes an image,
both engines quantize each point by itself: up to two steps of 8 bits from PyTorch's."""
DYNAMIC = 5e-3
"""Activations are rounded to 8 bits: one that falls between two steps may go the other way."""


def uses(kernels: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Nodes without the numbers that tell those of a kind apart, and the kernels that compute them."""
    return [(use["node"].rpartition(" #")[0], use["kernel"]) for use in kernels]


@pytest.mark.parametrize(("program", "cpu"), [(program, cpu) for program, cpus in EXPECTED.items() for cpu in cpus])
def test_a_layer_runs_on_the_kernel_its_processor_has(program: str, cpu: str, programs: Path, tmp_path: Path) -> None:
    words = ("--cpu_threads=2", "--num_executions=2", "--profile")
    result = arm(programs, program, cpu, *given(programs, program, tmp_path), *words)
    arms = [use for use in result["kernels"] if use["library"] == "KleidiAI"]
    kind, layers = EXPECTED[program][cpu], LAYERS.get(program, 3)
    assert [kind in use["kernel"] for use in arms] == [True] * (layers if kind else 0), arms
    assert len(result["kernels"]) == layers, "one a layer"
    # Every layer is in the profile by the name it has here.
    assert {use["node"] for use in result["kernels"]} <= {row["name"] for row in result["profile"]}
    described = arm(programs, program, cpu, "--describe")["methods"][0]["kernels"]
    assert uses(described) == uses(result["kernels"]), "the same without running it"
    wanted = sorted(programs.glob(f"{program}.out*.npy"))
    assert wanted
    for index, file in enumerate(wanted):
        want = numpy.load(file).astype(numpy.float64)
        allowed = TOLERANCES[program] * numpy.ptp(want) if program in TOLERANCES else DYNAMIC
        numpy.testing.assert_allclose(numpy.load(tmp_path / f"out{index}.npy"), want, rtol=0, atol=allowed)
