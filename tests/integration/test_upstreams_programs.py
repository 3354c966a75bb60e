"""Programs as upstream's exporter leaves them, without a description, on both engines: None, complex, weights apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import MissingOperatorError, ProgramError
from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from models.lowering import shortcuts
from toolchains.bundle.builder import build
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``none.pte``, ``spectrum.pte``, ``waves.pte``, and ``apart.pte`` with its ``.ptd``."""
    import torch
    from executorch.exir import ExecutorchBackendConfig

    from verify.sound.making import lower, made

    folder = tmp_path_factory.mktemp("programs")
    torch.manual_seed(0)
    x = torch.arange(8.0).reshape(2, 4)
    z = torch.complex(x - 3, x * 0.3)[:, :3]
    optional = made(lambda m, x, mask: (x + 1 if mask is None else x + mask, None, x * 2))
    # Upstream converts complex numbers wrongly.
    waves = made(lambda m, x, z: (torch.fft.rfft(x) * z, torch.fft.rfft(x.double())))
    apart = ExecutorchBackendConfig(external_constants=lambda _: "apart")
    with shortcuts.in_torch(), shortcuts.in_lowering():
        for name, module, inputs, config in (
            ("none", optional, (x, None), None),
            ("spectrum", made(lambda m, x: torch.fft.rfft(x).abs()), (x,), None),
            ("waves", waves, (x, z), None),
            ("apart", torch.nn.Linear(4, 3), (x,), apart),
        ):
            program = lower(torch.export.export(module, inputs, strict=False), (), config=config)
            (folder / f"{name}.pte").write_bytes(program.buffer)
            for file, blob in program.data.items():
                (folder / f"{file}.ptd").write_bytes(blob)
            with torch.no_grad():
                results, _ = torch.utils._pytree.tree_flatten(module(*inputs))
            for index, one in enumerate(results):
                np.save(folder / f"{name}{index}.npy", np.ndarray((), "V0") if one is None else one.numpy())
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "z.npy", z.numpy())
    np.save(folder / "no.npy", np.ndarray((), "V0"))
    return folder


@pytest.fixture(scope="module", params=["lean", "executorch"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    return build(host_target().name, request.param)


def run(bench: Device, bundle: Bundle, program: Path, *inputs: str, outputs: int = 1, **words: Any) -> Result:
    folder = program.parent
    settings = Settings(
        num_executions=1, warmup=0, inputs=tuple(folder / f"{name}.npy" for name in inputs),
        expected=tuple(folder / f"{program.stem}{index}.npy" for index in range(outputs)), **words,
    )  # fmt: skip
    return deploy(bench, bundle, program, settings, listeners=())


def test_none_goes_in_and_comes_out(bench: Device, bundle: Bundle, programs: Path, dist: Path) -> None:
    result = run(bench, bundle, programs / "none.pte", "x", "no", outputs=3)
    assert [(one.dtype, one.verdict) for one in result.outputs] == [
        ("float32", "identical"), ("none", "identical"), ("float32", "identical"),
    ]  # fmt: skip
    with pytest.raises(Exception, match=r"Input 1 does not fit: the method declares none scalar"):
        run(bench, bundle, programs / "none.pte", "x", "x", outputs=3)


def test_complex_numbers_run_or_are_named_before_the_upload(
    bench: Device, bundle: Bundle, programs: Path, dist: Path, tmp_path: Path
) -> None:
    if bundle.manifest.engine == "executorch":
        assert run(bench, bundle, programs / "spectrum.pte", "x").outputs[0].verdict in ("agrees", "identical")
        waves = run(bench, bundle, programs / "waves.pte", "x", "z", outputs=2).outputs
        assert [one.dtype for one in waves] == ["complex64", "complex128"]
        assert {one.verdict for one in waves} <= {"agrees", "identical"}
        with pytest.raises(Exception, match=r"Input 1 does not fit: the method declares complex64 2x3"):
            run(bench, bundle, programs / "waves.pte", "x", "x", outputs=2)
        wrong = tmp_path / "waves"
        wrong.mkdir()
        for name in ("waves.pte", "waves0.npy", "waves1.npy", "x.npy", "z.npy"):
            (wrong / name).write_bytes((programs / name).read_bytes())
        np.save(wrong / "waves0.npy", np.load(wrong / "waves0.npy").conj())
        other = run(bench, bundle, wrong / "waves.pte", "x", "z", outputs=2).outputs
        assert [one.verdict for one in other] == ["differs", waves[1].verdict], "the imaginary part counts"
        return
    with pytest.raises(MissingOperatorError, match=r"aten::_fft_r2c\.out.*aten::abs\.out of complex64") as refused:
        run(bench, bundle, programs / "spectrum.pte", "x")
    assert sum("_fft_r2c" in name for name in refused.value.names) == 1, "what has no kernel is missing for all types"
    assert not list(tmp_path.rglob("*.pte"))


def test_weights_apart_are_found_named_or_missed(
    bench: Device, bundle: Bundle, programs: Path, dist: Path, tmp_path: Path
) -> None:
    assert run(bench, bundle, programs / "apart.pte", "x").outputs[0].verdict in ("agrees", "identical")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("apart.pte", "apart0.npy", "x.npy"):
        (alone / name).write_bytes((programs / name).read_bytes())
    with pytest.raises(ProgramError, match=r"2 weights stored apart from it: bias, weight"):
        run(bench, bundle, alone / "apart.pte", "x")
    named = run(bench, bundle, alone / "apart.pte", "x", data=programs / "apart.ptd")
    assert named.outputs[0].verdict in ("agrees", "identical")
