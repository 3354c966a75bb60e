"""The engine onnxruntime's bundles: both providers on three targets, and a C library of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.environment import ensure_onnx
from core.formats.bundle import REAL_RUNNER, RUNNER, Bundle
from core.paths import ROOT
from tests.support.processes import ran, well
from toolchains.bundle.builder import build
from toolchains.compilers.libstdcxx import sysroot
from toolchains.debian import packages as debian
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = pytest.mark.build

CPUS = {"linux-x86_64": "", "linux-arm64": "cortex-a53", "linux-armv7": "cortex-a7"}
"""Each target's least CPU; a Cortex-A53 has no half precision, which ONNX Runtime 1.21 as published dies of."""


@dataclass(frozen=True)
class Outcome:
    code: int
    said: dict[str, Any]
    stderr: str


@dataclass(frozen=True)
class Runner:
    bundle: Bundle
    cpu: str

    @property
    def argv(self) -> list[str]:
        target = get_target(self.bundle.manifest.target)
        if emulators.is_native(target):
            return [str(self.bundle.path / RUNNER)]
        return [*emulators.user_argv(target, self.cpu), *self.bundle.emulated_argv]

    def __call__(self, *words: object, **env: str) -> Outcome:
        done = ran([*self.argv, *map(str, words), "--json"], timeout=300, env={"PATH": os.defpath, **env})
        return Outcome(done.returncode, json.loads(done.stdout), done.stderr)


@pytest.fixture(scope="module", params=list(CPUS))
def runner(request: pytest.FixtureRequest) -> Runner:
    return Runner(build(request.param, engine="onnxruntime"), CPUS[request.param])


@pytest.fixture(scope="module")
def host() -> Runner:
    return Runner(build("linux-x86_64", engine="onnxruntime"), "")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network: convolution, pool, softmax and matrix product for XNNPACK, the rest not."""
    ensure_onnx()
    from tests.support.onnx_graph import Graph

    net = Graph("small", 17)
    value = net.node("Conv", net.input(1, 3, 8, 8), net.weights(8, 3, 3, 3), net.weights(8), pads=[1, 1, 1, 1])
    value = net.node("MaxPool", net.node("Relu", value), kernel_shape=[2, 2], strides=[2, 2])
    value = net.node("Flatten", net.node("GlobalAveragePool", value))
    value = net.node("Softmax", net.node("MatMul", value, net.weights(8, 5)), axis=-1)
    return saved(net.model(value), tmp_path_factory.mktemp("onnx") / "small.onnx", [1, 3, 8, 8])


def saved(made: Any, file: Path, shape: list[int], number: float | None = None) -> Path:
    """The model in ``file``, and its input beside it: one number everywhere, or random ones."""
    file.write_bytes(made.SerializeToString())
    values = np.random.default_rng(0).standard_normal(shape) if number is None else np.full(shape, number)
    np.save(file.with_suffix(".npy"), values.astype("float32"))
    return file


def operators(outcome: Outcome, provider: str) -> set[str]:
    return {node["operator"] for node in outcome.said["placement"]["nodes"] if node["provider"] == provider}


def test_both_providers_agree_with_each_other_and_with_the_published_runtime(
    runner: Runner, model: Path, tmp_path: Path
) -> None:
    import onnxruntime

    given = model.with_suffix(".npy")
    found = {}
    for provider in ("xnnpack", "cpu"):
        files = (f"--model_path={model}", f"--inputs={given}", f"--output_file={tmp_path / provider}")
        outcome = runner(*files, f"--provider={provider}", "--cpu_threads=1", "--num_executions=2")
        assert outcome.code == 0, outcome
        assert outcome.stderr == ""
        found[provider] = np.load(tmp_path / f"{provider}0.npy")
        assert outcome.said["latency_ms"]["count"] == 2
        taken = operators(outcome, "XnnpackExecutionProvider")
        assert taken == ({"Conv", "MaxPool", "MatMul", "Softmax"} if provider == "xnnpack" else set())
        assert "Flatten" in operators(outcome, "CPUExecutionProvider")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {session.get_inputs()[0].name: np.load(given)})
    for values in found.values():
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module", params=["QDQ uint8", "QLinearMatMul int8"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A product of the largest 8-bit numbers, and its result: pairs of their products are more than 16 bits hold."""
    ensure_onnx()
    from tests.support.onnx_graph import Graph

    form, _, kind = request.param.partition(" ")
    largest = int(np.iinfo(kind).max)
    exact = 64 * largest * 127
    net = Graph("large", 17)
    one, signed = net.step(1, dtype=np.dtype(kind).type), net.step(1)
    weights = net.constant(np.full((64, 8), 127, np.int8))
    value = net.node("QuantizeLinear", net.input(1, 64), *one)
    if form == "QDQ":
        back = [net.node("DequantizeLinear", *each) for each in ((value, *one), (weights, *signed))]
        value = net.node("MatMul", *back)
    else:
        step = net.step(exact / 100, dtype=np.dtype(kind).type)
        value = net.node("QLinearMatMul", value, *one, weights, *signed, *step)
        value = net.node("DequantizeLinear", value, *step)
    return saved(net.model(value), tmp_path_factory.mktemp("large") / "large.onnx", [1, 64], largest), exact


@pytest.mark.parametrize("provider", ["xnnpack", "cpu"])
def test_sums_of_bytes_are_right_on_processors_without_vnni(
    host: Runner, large: tuple[Path, float], tmp_path: Path, provider: str
) -> None:
    file, exact = large
    argv = [*emulators.user_argv(get_target("linux-x86_64"), "Haswell"), *host.bundle.emulated_argv]
    words = [f"--model_path={file}", f"--inputs={file.with_suffix('.npy')}", f"--output_file={tmp_path / 'y'}"]
    done = ran([*argv, *words, f"--provider={provider}"], timeout=300)
    said = [line for line in done.stderr.splitlines() if not line.startswith("qemu-x86_64: warning: TCG")]
    assert (done.returncode, said) == (0, [])
    np.testing.assert_allclose(np.load(tmp_path / "y0.npy"), np.full((1, 8), exact), rtol=1e-6)


def test_so_are_those_of_the_reference(large: tuple[Path, float], tmp_path: Path) -> None:
    file, exact = large
    request = {
        "file": str(file), "folder": str(tmp_path), "log": str(tmp_path / "log"),
        "inputs": [str(file.with_suffix(".npy"))],
    }  # fmt: skip
    emulator = emulators.user_argv(get_target("linux-x86_64"), "Haswell")
    argv = [*emulator, sys.executable, "-m", "models.onnx.host"]
    done = well(ran(argv, input=json.dumps(request) + "\n", timeout=300, cwd=ROOT))
    assert "error" not in json.loads(done.stdout), done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "output0.npy"), np.full((1, 8), exact), rtol=1e-6)


def test_the_settings_are_the_recommended_ones_and_each_can_be_set(host: Runner, model: Path) -> None:
    said = host(f"--model_path={model}", "--cpu_threads=2").said["settings"]
    assert said == {"provider": "xnnpack", "xnnpack_threads": "2", "ort_threads": "1", "ort_spinning": "0"}
    said = host(f"--model_path={model}", "--ort_threads=2", "--ort_spinning", "--cpu_threads=1").said["settings"]
    assert said == {"provider": "xnnpack", "xnnpack_threads": "1", "ort_threads": "2", "ort_spinning": "1"}
    said = host(f"--model_path={model}", "--provider=cpu", "--cpu_threads=2").said["settings"]
    assert said == {"provider": "cpu", "xnnpack_threads": "0", "ort_threads": "2", "ort_spinning": "0"}


def test_a_profile_counts_every_timed_execution_and_no_warm_up(host: Runner, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    words = ("--profile", f"--profile_path={file}", "--num_executions=3", "--warmup=2", "--cpu_threads=1")
    rows = host(f"--model_path={model}", *words).said["profile"]
    assert {row["count"] for row in rows} == {3}
    assert {row["operator"] for row in rows} >= {"Conv", "MaxPool", "MatMul", "Softmax", "Flatten"}
    assert [row["total_ms"] for row in rows] == sorted((row["total_ms"] for row in rows), reverse=True)
    assert any(event.get("cat") == "Node" for event in json.loads(file.read_text(encoding="utf-8")))


def test_ort_models_run_on_xnnpack_too(host: Runner, model: Path, tmp_path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "small.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    file = tmp_path / "small.ort"
    described = host(f"--model_path={file}", "--describe")
    assert described.said["program"]["opsets"]["ai.onnx"] == 17
    sizes = {"shape": [1, 3, 8, 8], "ranges": [[1, 1], [3, 3], [8, 8], [8, 8]]}
    (given,) = described.said["methods"][0]["inputs"]
    assert given == {"dtype": "float32", "kind": "tensor", "dynamism": "static", **sizes}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    both = [host(f"--model_path={path}", "--cpu_threads=1", TMPDIR=str(scratch)) for path in (file, model)]
    assert [outcome.code for outcome in both] == [0, 0]
    assert "Conv" in operators(both[0], "XnnpackExecutionProvider")
    assert both[0].said["outputs"][0]["sha256"] == both[1].said["outputs"][0]["sha256"]
    assert list(scratch.iterdir()) == []
    file.write_bytes(file.read_bytes()[:-1000])
    assert host(f"--model_path={file}").said["error"]["kind"] == "file"


def test_the_bundle_keeps_its_loader_for_devices_that_need_it(host: Runner, model: Path) -> None:
    """Whatever the device's C library is, the bundle's own serves; this machine's may be older or newer."""
    outcome = host(f"--model_path={model}", "--cpu_threads=1", SLIPWAY_GLIBC="bundle")
    assert (outcome.code, outcome.stderr.count("\n")) == (0, 1)  # what the inputs were


def test_what_is_wrong_with_a_model_is_told_by_the_exit_code(host: Runner, model: Path, tmp_path: Path) -> None:
    import onnx

    cut = tmp_path / "cut.onnx"
    cut.write_bytes(model.read_bytes()[:300])
    assert host(f"--model_path={cut}").code == 3
    changed = onnx.load(model)
    changed.graph.node[1].op_type = "Mystery"
    onnx.save(changed, tmp_path / "mystery.onnx")
    outcome = host(f"--model_path={tmp_path / 'mystery.onnx'}", "--describe")
    assert (outcome.code, outcome.said["methods"][0]["missing_operators"]) == (0, ["Mystery"])
    outcome = host(f"--model_path={tmp_path / 'mystery.onnx'}")
    assert (outcome.code, outcome.said["error"]["names"]) == (4, ["Mystery"])
    changed = onnx.load(model)
    changed.opset_import[0].version = 99
    onnx.save(changed, tmp_path / "future.onnx")
    outcome = host(f"--model_path={tmp_path / 'future.onnx'}")
    assert (outcome.code, "opset" in outcome.said["error"]["message"]) == (3, True)
    assert host(f"--model_path={model}", "--input_shapes=1x3x8x9").code == 6


def test_what_the_provider_refuses_runs_on_the_other_one_that_is_advised(host: Runner, model: Path) -> None:
    """A convolution that a ReLU reads, and the model's output: it runs because it is kept from the provider."""
    import onnx

    changed, file = onnx.load(model), model.with_name("both.onnx")
    convolution = changed.graph.node[0].output[0]
    changed.graph.output.append(onnx.helper.make_tensor_value_info(convolution, 1, [1, 8, 8, 8]))
    onnx.save(changed, file)
    codes = [host(f"--model_path={file}", word).code for word in ("--provider=cpu", "--provider=xnnpack")]
    refused = host(f"--model_path={file}", "--trust_provider")
    assert (codes, refused.code, refused.said["error"]["fix"]) == ([0, 0], 5, "--provider cpu, which runs it")


def test_every_licence_that_a_copyright_file_names_is_in_the_bundle(runner: Runner) -> None:
    texts = runner.bundle.path / "licenses" / "onnxruntime"
    named = {
        name.rstrip(".")
        for words in texts.glob("*/copyright")
        for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]+)", words.read_text(errors="replace"))
    }
    assert "GPL-3" in named
    assert [name for name in sorted(named) if not (texts / "common-licenses" / name).is_file()] == []


def test_the_manifest_says_what_a_device_must_have(runner: Runner) -> None:
    needs, offers = runner.bundle.manifest.needs, runner.bundle.manifest.offers
    assert (needs.glibc, needs.glibcxx, needs.loader, needs.libraries) == ("", "", "", ())
    assert needs.own_glibc_from == "2.38"
    assert needs.kernel == {"linux-arm64": "4.11.0"}.get(runner.bundle.manifest.target, "3.2.0")
    assert offers.backends == ("CPUExecutionProvider", "XnnpackExecutionProvider")
    assert offers.kleidiai is (runner.bundle.manifest.target == "linux-arm64")


def starts(runner: Runner, program: str, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Start a program of the bundle on a system with the C library of ``root``, as a device would."""
    target = get_target(runner.bundle.manifest.target)
    argv = emulators.user_argv(target, runner.cpu or target.qemu_cpu, root)
    library_path = f"LD_LIBRARY_PATH={runner.bundle.path / 'lib'}"
    return ran([*argv, "-E", library_path, str(runner.bundle.path / program), *words], timeout=300)


def test_the_devices_c_library_serves_from_the_version_on_that_the_probe_accepts(runner: Runner) -> None:
    target = get_target(runner.bundle.manifest.target)
    older = sysroot(target)  # GLIBC 2.36
    newer = debian.tree("forky", target.debian_arch, ["libc6"])  # GLIBC 2.41 or later
    assert starts(runner, "lib/glibc/glibc_probe", older).returncode != 0
    assert "GLIBC_2.38' not found" in starts(runner, REAL_RUNNER, older, "--version").stderr
    assert starts(runner, "lib/glibc/glibc_probe", newer).returncode == 0
    assert "onnxruntime 1.21.0" in starts(runner, REAL_RUNNER, newer, "--version").stdout
