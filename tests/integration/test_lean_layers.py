"""What the lean engine computes in ways of its own: half precision, and 3x3 windows; whole nets beside upstream's."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import RUNNER, Bundle
from core.formats.program import load_program
from deploy.run.compare import compare
from models.export import export
from models.zoo import PORTABLE, load_compared
from tests.support.graphs import Graph, call_of, changed, tensor
from tests.support.processes import ran, well
from toolchains.bundle import builder
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target, host_target
from verify.agree.look import look, native
from verify.agree.programs import prepare, table

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

Compute = Callable[..., tuple[np.ndarray, dict[str, Any]]]
MODELS = ("mlp", "conv", "matmul")
CPUS = [("linux-arm64", "cortex-a53", True), ("linux-arm64", "cortex-a76", False), ("linux-x86_64", "Nehalem", True)]
"""Target, processor, and whether half precision is computed in float32 there. On this machine: test_zoo.py."""


def run(
    runner: Sequence[str | Path], program: Path, inputs: Sequence[Path], prefix: Path, *words: str
) -> dict[str, Any]:
    """What a runner says; its outputs are in the files ``{prefix}0.npy`` and so on."""
    given = f"--inputs={','.join(map(str, inputs))}"
    argv = [*runner, f"--model_path={program}", given, f"--output_file={prefix}", "--json", *words]
    said: dict[str, Any] = json.loads(well(ran(argv, timeout=120)).stdout)
    return said


@pytest.mark.parametrize(("target_name", "cpu", "instead"), CPUS)
def test_half_precision_runs_everywhere(target_name: str, cpu: str, instead: bool, tmp_path: Path) -> None:
    target = get_target(target_name)
    emulator = emulators.user_argv(target, cpu, None if emulators.is_native(target) else sysroot(target))
    runner: list[str | Path] = [*emulator, builder.build(target_name, "lean").path / RUNNER]
    for model in MODELS:
        folder = export(model, "fp16")
        program = load_program(folder)
        inputs = [folder / item.file for item in program.inputs]
        result = run(runner, folder / program.file, inputs, tmp_path / model, "--warmup=1", "--num_executions=1")
        told = [(item["wanted"], item["used"]) for item in result.get("fallbacks", ())]
        assert told == ([("float16", "float32")] if instead else []), result.get("fallbacks")
        for index, item in enumerate(program.outputs):
            assert result["outputs"][index]["dtype"] == "float16"
            found = compare(
                item.file, tmp_path / f"{model}{index}.npy", folder / item.file, program.tolerance_of(index)
            )
            assert found.verdict in ("identical", "agrees"), found


OUTSIDE = (1, 2)
"""Flags of a graph's inputs and outputs."""


def _in_bfloat16(graph: Graph, plan: Any) -> None:
    for index in range(len(graph["xvalues"])):
        value = tensor(graph, index)
        if value["flags"] in OUTSIDE:
            value["datatype"] = "xnn_datatype_bf16"
            argument = plan.values[call_of(plan).args[value["external_id"]]].val
            argument.scalar_type = type(argument.scalar_type).BFLOAT16


def test_a_layer_between_bfloat16_gives_the_rounded_numbers_of_float32(lean_runner: Path, tmp_path: Path) -> None:
    """With 4-bit weights, which the pinned XNNPACK does not have: lean converts the tensors."""
    import torch

    from models.loading import reference

    folder = export("linear", "qd8_qb4w")
    manifest = load_program(folder)
    original = folder / manifest.file
    narrow = tmp_path / "narrow.pte"
    narrow.write_bytes(changed(original.read_bytes(), _in_bfloat16))
    given = torch.from_numpy(np.load(folder / manifest.inputs[0].file)).to(torch.bfloat16)
    reference.save(tmp_path, "narrow", given)
    reference.save(tmp_path, "wide", given.float())

    for program, name in ((original, "wide"), (narrow, "narrow")):  # three times, with the same memory
        run([lean_runner], program, [tmp_path / f"{name}.npy"], tmp_path / name, "--num_executions=3")
    wanted = torch.from_numpy(np.load(tmp_path / "wide0.npy")).to(torch.bfloat16).view(torch.int16).numpy()
    found = np.load(tmp_path / "narrow0.npy")
    assert found.dtype.itemsize == 2
    np.testing.assert_array_equal(found.view(np.int16), wanted)
    assert np.any(wanted)


TESTED = [f"{name} {PORTABLE}" for name in load_compared()]


@pytest.mark.parametrize("name", TESTED)
def test_an_architecture_agrees_with_upstreams_runtime(lean: Bundle, name: str) -> None:
    about = table()[name]
    (program,) = prepare([about])
    seen = look(native(lean), program)
    assert seen.good, seen
    assert seen.outcome == "exact" or not about.exact, seen
    delegates = load_program(program.file.parent).delegates
    assert delegates == 0 if about.scheme == "portable" else delegates > 0


def test_state_that_is_lost_between_executions_would_be_seen(lean: Bundle) -> None:
    (program,) = prepare([table()["llama portable"]])
    assert program.runs > 1
    assert look(native(lean), replace(program, runs=1)).outcome == "differs"


LARGEST = (3, 3, 40, 41)
SHAPES = [LARGEST, (1, 3, 5, 5), (2, 3, 16, 7), (1, 3, 40, 6), (3, 3, 9, 41)]
LAYERS = 3
"""Of the net's four convolutions; the first one has too few channels."""


@pytest.fixture(scope="module")
def net() -> Any:
    """Convolutions with padding of 0, 1 and 2, one without a bias."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 50, 3, padding=2, bias=False), nn.ReLU6(),
        nn.Conv2d(50, 64, 3), nn.Conv2d(64, 33, 3, padding=1),
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def program(net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net for images of any size up to the largest."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch.export import Dim, export

    names = {0: ("batch", 1), 2: ("height", 5), 3: ("width", 5)}
    dims = {place: Dim(name, min=least, max=LARGEST[place]) for place, (name, least) in names.items()}
    exported = export(net, (torch.ones(LARGEST),), dynamic_shapes=(dims,))
    path = tmp_path_factory.mktemp("winograd") / "model.pte"
    to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().save(str(path))
    return path


@pytest.fixture
def compute(lean_runner: Path, program: Path, tmp_path: Path) -> Compute:
    """Gives the net's output for an image, and what the runner says."""

    def call(x: np.ndarray, *words: str) -> tuple[np.ndarray, dict[str, Any]]:
        np.save(tmp_path / "x.npy", x)
        said = run([lean_runner], program, [tmp_path / "x.npy"], tmp_path / "y", *words)
        return np.load(tmp_path / "y0.npy"), said

    return call


def layers(answer: dict[str, Any]) -> int:
    """How many layers are computed by Winograd's method."""
    return sum(use["kernel"].startswith("slipway_f32_winograd_2x2_3x3__") for use in answer["kernels"])


def test_images_of_any_size(compute: Compute, net: Any) -> None:
    import torch

    double = copy.deepcopy(net).double()
    for number, shape in enumerate(SHAPES):
        x = np.random.default_rng(number).standard_normal(shape, np.float32)
        want = double(torch.from_numpy(x).double()).detach().numpy()
        got, answer = compute(x, "--cpu_threads=1")
        np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=str(shape))
        other, _ = compute(x, "--cpu_threads=3")
        assert np.array_equal(got, other), "any number of threads computes the same bits"
        if host_target().machine == "x86_64":
            assert layers(answer) == LAYERS


def test_a_pixel_that_is_no_number_is_in_no_result_beyond_its_windows(compute: Compute) -> None:
    x = np.random.default_rng(5).standard_normal(LARGEST, np.float32)
    plain, _ = compute(x)
    x[1, :, 20, 10] = np.nan
    odd, _ = compute(x)
    beyond = np.ones(plain.shape, bool)
    beyond[1, :, 16:25, 6:15] = False  # four windows of 3x3, one after the other
    assert np.array_equal(odd[beyond], plain[beyond])


def test_a_cache_of_weights_keeps_transformed_ones(compute: Compute, tmp_path: Path) -> None:
    x = np.random.default_rng(7).standard_normal(LARGEST, np.float32)
    plain, _ = compute(x)
    for state in ("made", "used"):
        got, answer = compute(x, f"--weights_cache={tmp_path / 'weights'}")
        assert answer["weights"]["cache"]["state"] == state
        assert np.array_equal(got, plain)
        if host_target().machine == "x86_64":
            assert layers(answer) == LAYERS
