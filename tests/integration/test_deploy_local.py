"""The whole way on this machine: real bundle, real programs, nothing pretended."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import MismatchError
from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.run.events import Event, Listener
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings

pytestmark = [pytest.mark.build, pytest.mark.export]

Go = Callable[..., Result]


@pytest.fixture
def go(bench: Device, bundle: Bundle, dist: Path) -> Go:
    def call(where: Path, listeners: Sequence[Listener] = (), **options: Any) -> Result:
        settings = Settings(**{"num_executions": 2, "warmup": 0, **options})
        return deploy(bench, bundle, where, settings, listeners=listeners)

    return call


def test_the_second_time_nothing_is_uploaded_and_a_new_model_alone(
    go: Go, program: Path, other_program: Path, root: Path, dist: Path
) -> None:
    first = go(program)
    assert ([output.verdict for output in first.outputs], first.emulated) == (["identical"], False)
    assert first.runner.latency_ms.count == 2
    assert set(first.seconds) >= {
        "describe", "connect", "probe", "survey", "preflight", "upload", "run", "fetch", "compare",
    }  # fmt: skip
    written = json.loads((dist / f"results/bench-{program.name}-executorch.json").read_text())
    assert written["verdict"] == "identical"
    assert (dist / "results" / written["files"][0]).is_file()
    assert first.upload.bytes > 10_000_000
    texts: list[str] = []

    def listen(event: Event) -> None:
        if (event.step, event.kind) == ("upload", "end"):
            texts.append(event.text)

    second = go(program, listeners=[listen])
    assert (second.upload.files, second.upload.bytes) == (0, 0)
    assert second.upload.present_bytes == first.upload.bytes
    assert "0 bytes of payload" in texts[0]
    third = go(other_program)
    sizes = {file.name: file.stat().st_size for file in other_program.iterdir()}
    assert set(third.upload.names) == {"model.pte", "input0.npy"}
    assert third.upload.bytes == sizes["model.pte"] + sizes["input0.npy"]
    assert sorted(path.name for path in root.iterdir()) == [
        ".slipway-root", "bundles", "current", "incoming", "lock", "previous", "programs", "runs", "store", "weights",
    ]  # fmt: skip
    assert list((root / "runs").iterdir()) == list((root / "incoming").iterdir()) == []


def test_what_went_missing_on_the_device_is_uploaded_again(go: Go, program: Path, root: Path) -> None:
    go(program)
    for folder in (root / "bundles").iterdir():
        shutil.rmtree(folder / "lib")
    libraries = go(program)
    assert (libraries.verdict, libraries.upload.bytes) == ("identical", 0), "the store has them still"
    shutil.rmtree(root / "store")
    assert go(program).upload.files == 0, "the bundle and the program in their places are enough"
    shutil.rmtree(root / "programs")
    assert go(program).upload.files == 2


def test_a_pte_of_ones_own(go: Go, program: Path, tmp_path: Path) -> None:
    pte = shutil.copy(program / "model.pte", tmp_path / "mine.pte")
    plain = go(Path(pte))
    assert (plain.verdict, plain.program.name) == ("no reference", "mine")
    inputs, outputs = [program / "input0.npy"], [program / "output0.npy"]
    assert go(Path(pte), inputs=inputs, expected=outputs).verdict == "identical"
    array = np.load(outputs[0])
    array.flat[0] += 1
    np.save(tmp_path / "other.npy", array)
    result = go(Path(pte), inputs=inputs, expected=[tmp_path / "other.npy"])
    assert result.outputs[0].outside == 1
    with pytest.raises(MismatchError, match="1 of 1 outputs"):
        result.check()


def test_an_etdump_is_kept_when_asked_for_and_no_folder_of_a_run(go: Go, program: Path, dist: Path, root: Path) -> None:
    result = go(program, etdump=True)
    assert (dist / f"results/{result.key}/run.etdp").stat().st_size > 0
    assert list((root / "runs").iterdir()) == []


def test_the_device_is_never_trusted_with_paths(
    go: Go, program: Path, monkeypatch: pytest.MonkeyPatch, dist: Path
) -> None:
    from deploy.run import runner

    real = runner.parse_result

    def parse(raw: bytes) -> runner.RunnerResult:
        value = json.loads(raw)
        for output in value["outputs"]:
            output["file"] = "../../../etc/passwd"
        return real(json.dumps(value).encode())

    monkeypatch.setattr("deploy.run.runner.parse_result", parse)
    result = go(program)
    assert result.verdict == "identical"
    assert result.files == (f"{result.key}/output0.npy",)
