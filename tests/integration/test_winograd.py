"""3x3 convolutions by Winograd's method: any image, batch, padding and number of threads, with and without a cache."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import RUNNER, Bundle
from tests.support.builds import lean
from tests.support.processes import ran
from toolchains.targets import host_target

__all__ = ["lean"]

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

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
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 50, 3, padding=2, bias=False),
        nn.ReLU6(),
        nn.Conv2d(50, 64, 3),
        nn.Conv2d(64, 33, 3, padding=1),
    ).eval()


@pytest.fixture(scope="module")
def program(net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The net for images of any size up to the largest."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torch.export import Dim, export

    dims = {
        0: Dim("batch", min=1, max=LARGEST[0]),
        2: Dim("height", min=5, max=LARGEST[2]),
        3: Dim("width", min=5, max=LARGEST[3]),
    }
    exported = export(net, (torch.ones(LARGEST),), dynamic_shapes=(dims,))
    path = tmp_path_factory.mktemp("winograd") / "model.pte"
    to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().save(str(path))
    return path


def run(lean: Bundle, program: Path, folder: Path, x: np.ndarray, *words: str) -> tuple[np.ndarray, dict[str, Any]]:
    np.save(folder / "x.npy", x)
    argv = [str(lean.path / RUNNER), f"--model_path={program}", f"--inputs={folder / 'x.npy'}", "--json"]
    argv += [f"--output_file={folder / 'y'}", *words]
    done = ran(argv, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return np.load(folder / "y0.npy"), json.loads(done.stdout)


def layers(answer: dict[str, Any]) -> int:
    """How many layers are computed by Winograd's method."""
    return sum(use["kernel"].startswith("slipway_f32_winograd_2x2_3x3__") for use in answer["kernels"])


def test_images_of_any_size(lean: Bundle, net: Any, program: Path, tmp_path: Path) -> None:
    import torch

    double = copy.deepcopy(net).double()
    for number, shape in enumerate(SHAPES):
        x = np.random.default_rng(number).standard_normal(shape, np.float32)
        want = double(torch.from_numpy(x).double()).detach().numpy()
        got, answer = run(lean, program, tmp_path, x, "--cpu_threads=1")
        np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=str(shape))
        other, _ = run(lean, program, tmp_path, x, "--cpu_threads=3")
        assert np.array_equal(got, other), "any number of threads computes the same bits"
        if host_target().machine == "x86_64":
            assert layers(answer) == LAYERS


def test_a_pixel_that_is_no_number_is_in_no_result_beyond_its_windows(
    lean: Bundle, program: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(5).standard_normal(LARGEST, np.float32)
    plain, _ = run(lean, program, tmp_path, x)
    x[1, :, 20, 10] = np.nan
    odd, _ = run(lean, program, tmp_path, x)
    beyond = np.ones(plain.shape, bool)
    beyond[1, :, 16:25, 6:15] = False  # four windows of 3x3, one after the other
    assert np.array_equal(odd[beyond], plain[beyond])


def test_a_cache_of_weights_keeps_transformed_ones(lean: Bundle, program: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(7).standard_normal(LARGEST, np.float32)
    plain, _ = run(lean, program, tmp_path, x)
    for state in ("made", "used"):
        got, answer = run(lean, program, tmp_path, x, f"--weights_cache={tmp_path / 'weights'}")
        assert answer["weights"]["cache"]["state"] == state
        assert np.array_equal(got, plain)
        if host_target().machine == "x86_64":
            assert layers(answer) == LAYERS
