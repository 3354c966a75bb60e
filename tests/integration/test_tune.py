"""The kernels of layers: what could compute each, files that choose, and their measurement on a device."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from core.errors import EmulatedError
from core.formats.bundle import RUNNER, Bundle
from deploy.devices.inventory import Device
from deploy.run import tuning
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.run.tuned import tuned_text
from deploy.upkeep import upkeep
from models.export import export
from tests.support.checksums import checksum
from toolchains.bundle import builder
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def lean() -> Bundle:
    return builder.build(host_target().name, "lean")


@pytest.fixture(scope="module")
def mixed() -> Path:
    """A program with convolutions, a depthwise one, and a linear layer."""
    return export("mixed", "fp32") / "model.pte"


def ask(lean: Bundle, *words: str, code: int = 0) -> tuple[Answer, str]:
    """The runner's JSON and what it says on standard error."""
    argv = [str(lean.path / RUNNER), *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def kernels(lean: Bundle, program: Path, *words: str) -> dict[str, Answer]:
    """The layers' kernels with what else could compute them, by the layers' names."""
    found, _ = ask(lean, f"--model_path={program}", "--describe", "--kernels", *words)
    return {use["layer"]: use for use in found["methods"][0]["kernels"]}


def test_describe_lists_what_could_compute_each_layer(lean: Bundle, mixed: Path) -> None:
    layers = kernels(lean, mixed)
    assert layers
    for name, use in layers.items():
        names = [candidate["choice"] for candidate in use["candidates"]]
        assert name.startswith("forward/")
        assert len(set(names)) == len(names)
        assert names[-1] == "xnnpack"
        assert use["choice"] == use["own_choice"]
        assert use["choice"] in names
        # A tile's name is a part of its kernel's.
        assert use["library"] == ("XNNPACK" if use["choice"] == "xnnpack" else "Slipway")
        assert use["choice"] in use["kernel"].replace("f32_gemm_", "") or use["choice"] == "xnnpack"
    if host_target().machine == "x86_64":
        assert any(len(use["candidates"]) > 2 for use in layers.values())
    plain, _ = ask(lean, f"--model_path={mixed}", "--describe")
    assert all("candidates" not in use for use in plain["methods"][0]["kernels"])


def test_a_file_chooses_the_kernels(lean: Bundle, mixed: Path, tmp_path: Path) -> None:
    layers = kernels(lean, mixed)
    name = next(name for name, use in layers.items() if use["choice"] != "xnnpack")
    run = [f"--model_path={mixed}", "--kernels", f"--weights_cache={tmp_path / 'weights'}"]
    plain, _ = ask(lean, *run)
    file = tmp_path / "choices"
    file.write_text(f"slipway kernels 1\nthreads 1\nlayer {name} xnnpack\n", encoding="ascii")
    chosen, _ = ask(lean, *run, f"--kernel_choices={file}")
    found = {use["layer"]: use for use in chosen["kernels"]}
    assert (found[name]["choice"], found[name]["library"]) == ("xnnpack", "XNNPACK")
    assert found[name]["own_choice"] == layers[name]["choice"]
    others = [each for each in layers if each != name]
    assert [found[each]["kernel"] for each in others] == [layers[each]["kernel"] for each in others]
    assert chosen["threads"] == 1
    given, _ = ask(lean, *run, f"--kernel_choices={file}", "--cpu_threads=2")
    assert given["threads"] == 2
    # Weights in the form of other kernels are not taken from a cache.
    assert "other kernels" in chosen["weights"]["cache"]["why"] or plain["weights"]["cache"]["state"] == "none"
    assert [one["shape"] for one in chosen["outputs"]] == [one["shape"] for one in plain["outputs"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "damaged"),
        ("slipway kernels 2\n", "another kind or version"),
        ("slipway kernels 1\nlayer forward/0/1\n", "unreadable line"),
        ("slipway kernels 1\nlayer forward/0/99999 xnnpack\n", "no layer 'forward/0/99999'"),
        ("slipway kernels 1\nlayer NAME 99x99\n", "no kernel '99x99'"),
        ("slipway kernels 1\nlayer NAME xnnpack\nlayer NAME xnnpack\n", "twice"),
        ("slipway kernels 1\nprocessor 0\n", "another processor"),
        ("slipway kernels 1\nlayer NAME xnnpack\nsum 0\n", "checksum"),
    ],
)
def test_a_wrong_file_is_an_error_or_left_out(
    lean: Bundle, mixed: Path, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "choices"
    file.write_text(text.replace("NAME", next(iter(kernels(lean, mixed)))), encoding="ascii")
    failed, said = ask(lean, f"--model_path={mixed}", f"--kernel_choices={file}", code=2)
    assert message in failed["error"]["message"]
    assert message in said
    ran, said = ask(lean, f"--model_path={mixed}", f"--tuned={file}")
    assert ran["tuned"]["state"] == "none"
    assert ran["tuned"]["why"]
    assert "not tuned" in said
    none, said = ask(lean, f"--model_path={mixed}", f"--tuned={tmp_path / 'nothing'}")
    assert (none["tuned"]["why"], "not tuned" in said) == ("there is none", False)


def _sum(text: str) -> str:
    """The checksum of runtime/base/checksum.cpp, in hexadecimal digits."""
    first, second = struct.unpack("<2Q", checksum(text.encode()))
    return f"{first:016x}{second:016x}"


def _made_by_hand(part: Path, lines: list[str]) -> str:
    """A file of choices as the runner writes it, for the owner of the measurements in ``part``."""
    owner = [line for line in part.read_text(encoding="ascii").splitlines() if line.startswith(("processor", "file"))]
    text = "\n".join(["slipway kernels 1", *owner, *lines]) + "\n"
    return f"{text}sum {_sum(text)}\n"


def test_measuring_goes_on_where_it_was_interrupted(lean: Bundle, tmp_path: Path) -> None:
    program = export("mobilenet_v2", "fp32") / "model.pte"
    file, part = tmp_path / "tuned", tmp_path / "tuned.part"
    words = [str(lean.path / RUNNER), f"--model_path={program}", f"--tune={file}", "--tune_seconds=60"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not part.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tuned.part"]
    before = part.read_text(encoding="ascii")
    assert before.startswith("slipway tuning 1\n")
    found, _ = ask(lean, *words[1:3], "--tune_seconds=1")
    after = part.read_text(encoding="ascii")
    assert len(after) > len(before)  # nothing is measured twice
    assert found["tuning"]["phase"] != "done"
    assert all(layer["own"] in [each["choice"] for each in layer["candidates"]] for layer in found["tuning"]["layers"])
    # What is damaged, or belongs to something else, is not gone on with.
    part.write_text(after.replace("processor ", "processor 0"), encoding="ascii")
    ask(lean, *words[1:3], "--tune_seconds=1")
    anew = part.read_text(encoding="ascii")
    assert anew.startswith("\n".join(after.splitlines()[:4]))
    assert not anew.startswith("\n".join(before.splitlines()[:6]))


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(
        name="bench", transport="local", target=host_target().name, root=str(tmp_path / "a device"), timeout=120
    )


SETTINGS = Settings(num_executions=2, warmup=0, weights_cache=False)


def test_later_deploys_take_what_was_measured(lean: Bundle, device: Device, tmp_path: Path, dist: Path) -> None:
    program = export("mobilenet_v2", "fp32")
    layers = kernels(lean, program / "model.pte")
    name = next(name for name, use in layers.items() if use["choice"] != "xnnpack")
    plain = deploy(device, lean, program, SETTINGS)
    assert plain.runner.tuned is not None
    assert tuned_text(plain.runner.tuned) == ""
    folder = tmp_path / "a device" / "weights"
    # Interrupted by its time limit: this is how measurements of a lost connection look.
    file = folder / f"{plain.program.sha256}.{device.target}-lean.forward.tuned"
    held = tmp_path / "a device" / "programs"
    (on_device,) = held.glob("*/model.pte")
    (runner,) = (tmp_path / "a device" / "bundles").glob("*/bin/pte_runner")
    argv = [str(runner), f"--model_path={on_device}", f"--tune={file}", "--tune_seconds=1"]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    made = _made_by_hand(Path(f"{file}.part"), ["threads 1", "time 2000000 1000000", f"layer {name} xnnpack"])
    file.write_text(made, encoding="ascii")
    result = deploy(device, lean, program, SETTINGS)
    assert result.runner.tuned is not None
    assert (result.runner.tuned.state, result.runner.tuned.layers, result.runner.threads) == ("used", 1, 1)
    assert "1 layer with other kernels" in tuned_text(result.runner.tuned)
    assert result.verdict in {"identical", "agrees"}
    assert deploy(device, lean, program, SETTINGS.model_copy(update={"tuned": False})).runner.tuned is None
    # Nothing is measured again, by several at once either.
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(tuning.tune, device, lean, program, SETTINGS, 60, listeners=[]) for _ in range(2)]
        assert all(each.result().tuning.already for each in both)
    assert upkeep.verify(device).damaged == ()
    assert file.exists()
    file.write_text(made.replace(" xnnpack", " 1x16"), encoding="ascii")  # a damaged one is left out
    result = deploy(device, lean, program, SETTINGS)
    assert result.runner.tuned is not None
    assert "checksum" in tuned_text(result.runner.tuned)


def test_tuning_a_small_program_comes_to_an_end(lean: Bundle, mixed: Path, device: Device, dist: Path) -> None:
    seen = tuning.tune(device, lean, mixed.parent, SETTINGS, 30, listeners=[])
    assert seen.tuning.phase == "done"
    assert seen.tuning.layers
    assert all(run.samples for run in seen.tuning.runs) or len(seen.tuning.runs) == 1
    weights = Path(str(device.root)) / "weights"
    names = sorted(each.name for each in weights.iterdir())
    assert names == ([f"{seen.sha256}.{device.target}-lean.forward.tuned"] if seen.tuning.kept else [])
    assert bool(seen.tuning.why) != seen.tuning.kept
    assert seen.verdict in ({"identical", "agrees"} if seen.tuning.kept else {""})


def test_an_emulated_device_is_refused_and_its_candidates_are_listed(lean: Bundle, mixed: Path, device: Device) -> None:
    emulated = device.model_copy(update={"tags": ("emulated",)})
    with pytest.raises(EmulatedError):
        tuning.tune(emulated, lean, mixed.parent, SETTINGS, 30, listeners=[])
    assert not Path(str(device.root)).exists()
    found = tuning.candidates_here(lean, mixed.parent, SETTINGS)
    assert [each.layer for each in found] == list(kernels(lean, mixed))
    assert found == tuning.candidates(device, lean, mixed.parent, SETTINGS)
