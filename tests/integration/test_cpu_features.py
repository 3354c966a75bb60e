"""Kernels of a lesser CPU on the same one: what leaving features and KleidiAI unused changes, and what it does not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.formats.bundle import RUNNER, Bundle
from models.export import export
from tests.support import kleidiai
from tests.support.builds import made_by
from tests.support.processes import ran
from toolchains.bundle import builder
from toolchains.emulation.platforms import platform_for
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module")
def here() -> Bundle:
    return builder.build("linux-x86_64", "lean")


@pytest.fixture(scope="module")
def program() -> Path:
    return export("mlp", "fp32")


def run(argv: list[str], program: Path, folder: Path, *flags: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    words = [f"--model_path={program / 'model.pte'}", f"--inputs={program / 'input0.npy'}"]
    done = ran([*argv, *words, f"--output_file={folder / 'out'}", "--json", "--cpu_threads=1", *flags], timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0 or "error" in found, done.stderr
    return found


def features(result: dict[str, Any]) -> set[str]:
    return {use["feature"] for use in result["kernels"]}


def test_the_roofline_is_what_a_machine_can_compute(here: Bundle) -> None:
    def measure(*flags: str) -> str:
        argv = [str(here.path / RUNNER), "--roofline", *flags]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    found = json.loads(measure("--json", "--cpu_threads=2"))
    one, two = found["roofline"]
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    feature = "avx512f" if "avx512f" in flags else "avx2" if {"avx2", "fma"} <= set(flags) else "sse2"
    assert [(point["threads"], point["feature"]) for point in (one, two)] == [(1, feature), (2, feature)]
    # No core has more than two units for 16 products with their sums, nor 6 GHz: more means that work was left out.
    for point in (one, two):
        assert 1 < point["gflops"] < 2 * 2 * 16 * 6 * point["threads"]
        assert 0.1 < point["gbytes_per_s"] < 1000
    assert found["buffer_bytes"] >= 2 * found["cache_bytes"]
    text = measure("--cpu_threads=1")
    assert f"GFLOP/s in float32 ({feature})" in text
    assert "threads" not in text


def test_a_lesser_x86_cpu_chooses_lesser_kernels(here: Bundle, program: Path, tmp_path: Path) -> None:
    argv = [str(here.path / RUNNER)]
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
        result = run(argv, program, tmp_path / "o", *([flag] if flag else []))
        left = result["settings"].get("cpu_features_unused", "").split(",")
        absent = result["settings"].get("cpu_features_absent", "").split(",")
        assert not flag or {unused, flag.partition("=-")[2]} <= {*left, *absent}
        assert features(result) <= wide
        seen.append({use["kernel"] for use in result["kernels"]})
        assert numpy.allclose(numpy.load(tmp_path / "o" / "out0.npy"), want, rtol=1e-5, atol=1e-5)
    assert seen[0] != seen[4], "SSE runs other kernels than all that this machine has"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--kleidiai=on", "built without KleidiAI"),
        ("--kleidiai=maybe", "cannot be 'maybe'"),
        ("--cpu_features=-avx513f", "--cpu_features=-avx512f"),
        ("--cpu_features=avx2", "a minus before each"),
    ],
)
def test_words_are_strict(here: Bundle, program: Path, tmp_path: Path, flag: str, said: str) -> None:
    error = run([str(here.path / RUNNER)], program, tmp_path / "o", flag)["error"]
    assert error["kind"] == "usage"
    assert said in error["message"] + error["fix"]


def test_each_choice_has_its_own_packed_weights(here: Bundle, program: Path, tmp_path: Path) -> None:
    """A cache that another choice left is not used; that would compute with weights packed for other kernels."""
    argv, cache = [str(here.path / RUNNER)], f"--weights_cache={tmp_path / 'weights'}"
    # The program's own file must be old enough for its times to vouch for it.
    for flag in ("", "--cpu_features=-avx", ""):
        flags = [flag] if flag else []
        states = [run(argv, program, tmp_path / "o", cache, *flags)["weights"]["cache"] for _ in range(2)]
        assert [state["state"] for state in states] == ["made", "used"]
        assert not flag or states[0]["why"].startswith("it was made for another processor")


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the programs of tests/support/kleidiai_layers.py."""
    return made_by(kleidiai.MAKER)


def arm(programs: Path, name: str, folder: Path, *flags: str) -> dict[str, Any]:
    """The result of a program under QEMU with all features that it has; its output is out0.npy in ``folder``."""
    inputs = ",".join(str(file) for file in sorted(programs.glob(f"{name}.in*.npy")))
    words = [f"--model_path={programs / name}.pte", f"--inputs={inputs}", f"--output_file={folder / 'out'}"]
    runner = builder.build(kleidiai.TARGET, "lean").path / RUNNER
    platform = platform_for(get_target(kleidiai.TARGET), "sme2")
    done = platform.run(runner, [*words, "--json", "--cpu_threads=1", *flags], timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "tolerance"), [("qc8w-21", 5e-3), ("qc4w", 5e-3), ("f32", 1e-5)])
def test_kleidiai_can_be_switched_off(name: str, tolerance: float, programs: Path, tmp_path: Path) -> None:
    """XNNPACK's own kernels then, and the same numbers: of kernels that the engine calls, and that XNNPACK does."""
    outputs = []
    for word, library in (("on", "KleidiAI"), ("off", "XNNPACK")):
        result = arm(programs, name, tmp_path, f"--kleidiai={word}")
        assert {use["library"] for use in result["kernels"]} == {library}
        assert result["settings"]["kleidiai"] == word
        outputs.append(numpy.load(tmp_path / "out0.npy").astype(numpy.float64))
    allowed = tolerance * max(1.0, float(numpy.ptp(outputs[0])))
    assert numpy.abs(outputs[0] - outputs[1]).max() <= allowed


@pytest.mark.parametrize(
    ("flag", "has"),
    [("-sme2", "neon_i8mm"), ("-sme,-sve", "neon_i8mm"), ("-sme,-i8mm", "neon_dotprod"), ("-sme,-dotprod", "neon")],
)
def test_a_lesser_arm_cpu_chooses_lesser_kernels(flag: str, has: str, programs: Path, tmp_path: Path) -> None:
    result = arm(programs, "qc8w-21", tmp_path, f"--cpu_features={flag}")
    assert all(has in use["kernel"] for use in result["kernels"])
    assert ({use["library"] for use in result["kernels"]} == {"KleidiAI"}) is (has != "neon")
    assert "sme2" in result["settings"]["cpu_features_unused"].split(",")
