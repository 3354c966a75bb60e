"""The examples of the SDKs: built outside of the checkout, and run on a device."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.formats.bundle import runner_in
from core.formats.program import load_program
from core.paths import ROOT
from deploy.devices.inventory import FILE, get_device
from deploy.run.execute import execute
from models.export import export
from tests.support.processes import executable, ran, well
from toolchains import tools
from toolchains.bundle import builder
from toolchains.bundle.sdk import build_sdk

EXAMPLES = ROOT / "runtime/examples"
_FRAMES = 6
_SCRIPT = """\
#!/bin/sh
set -e
chmod +x pte_runner run_once camera
./pte_runner --model_path=model.pte --inputs=in.npy --output_file=out >/dev/null
tail -c "$1" out0.npy | sha256sum
./run_once model.pte in.bin once.bin
sha256sum <once.bin
./camera model.pte in.bin frames.bin "$2" >&2
head -c "$1" frames.bin | sha256sum
wc -c <frames.bin
if [ -e libslipway.so.1 ]; then
    chmod +x run_once_shared
    LD_LIBRARY_PATH=. ./run_once_shared model.pte in.bin shared.bin
    sha256sum <shared.bin
fi
"""
"""What runs on the device: `$1` is an output's size in bytes, `$2` the number of frames."""
_INSTALLED = """\
#!/bin/sh
set -e
tar -xzf app.tar.gz
size=$1 model=$2
shift 2
for provider in "$@"; do
    app/bin/pte_runner --model_path="$model" --inputs=in.npy --cpu_threads=2 $provider --output_file=out >/dev/null
    tail -c "$size" out0.npy | sha256sum
done
case $model in
    *.onnx) threads=2 ;;
    *) threads='' ;;
esac
app/bin/run_once "$model" in.bin out.bin $threads >printed 2>said
sha256sum <out.bin
wc -l <printed
grep -c "Schema error" said || true
"""
"""The same for an engine's SDK: an output's size, the model, and options of the runner, which runs once for each."""


def configure(
    source: Path, folder: Path, toolchain: Path | None, words: Sequence[str] = (), env: dict[str, str] | None = None
) -> Path:
    """Configure and build a project into ``folder`` as its author would, with a toolchain file or none; ``folder``."""
    file = [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"] if toolchain else []
    argv: list[str | Path] = [
        tools.program("cmake"), "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_MAKE_PROGRAM={tools.program('ninja')}", *file, *words,
    ]  # fmt: skip
    well(ran(argv, env=env))
    well(ran([tools.program("cmake"), "--build", folder], env=env))
    return folder


def put_program(folder: Path) -> Path:
    """Leave ``model.pte`` in ``folder``, and an input as ``in.npy`` and ``in.bin``; the export that it is of."""
    exported = export("mlp", "fp32")
    shutil.copy(exported / load_program(exported).file, folder / "model.pte")
    inputs = np.random.default_rng(5).standard_normal((8, 64)).astype(np.float32)
    np.save(folder / "in.npy", inputs)
    (folder / "in.bin").write_bytes(inputs.tobytes())
    return exported


def run_on(name: str, folder: Path) -> None:
    """Build the examples with the SDK of a device's target; on the device, their outputs must be pte_runner's."""
    device = get_device(name, FILE)
    sdk = build_sdk(device.target)
    shutil.copytree(EXAMPLES, folder / "source")
    # Without symbols: the virtual devices have little room.
    prefix = [f"-DCMAKE_PREFIX_PATH={sdk.path}", "-DCMAKE_EXE_LINKER_FLAGS_RELEASE=-s"]
    built = configure(folder / "source", folder / "build", sdk.toolchain_file, prefix)
    exported = put_program(folder)
    executable(folder / "examples.sh", _SCRIPT)
    bundle = builder.build(device.target, "lean")
    files = [bundle.path / runner_in(bundle.path), built / "run_once", built / "camera"]
    if sdk.manifest.shared:
        files += [built / "run_once_shared", sdk.path / "lib/libslipway.so.1"]
    files += [folder / "model.pte", folder / "in.npy", folder / "in.bin"]
    size = _output_bytes(exported)
    done = execute(device, folder / "examples.sh", [str(size), str(_FRAMES)], tuple(files), 600)
    assert done.code == 0, done.stderr.decode(errors="replace")
    runner, once, camera, frames, *shared = done.stdout.decode().split("\n")[:-1]
    assert once == camera == runner
    assert int(frames) == _FRAMES * size
    assert shared == ([runner] if sdk.manifest.shared else [])
    assert runner.split()[0] != hashlib.sha256(b"").hexdigest()
    assert f"{_FRAMES} frames, 0 copied" in done.stderr.decode()


def _output_bytes(exported: Path) -> int:
    return int(np.load(exported / load_program(exported).outputs[0].file).nbytes)


def run_installed(name: str, engine: str, folder: Path) -> None:
    """Build and install an engine's examples with its SDK; on the device, their outputs must be its pte_runner's."""
    device = get_device(name, FILE)
    sdk = build_sdk(device.target, engine=engine)
    shutil.copytree(EXAMPLES / engine, folder / "source")
    prefix = [f"-DCMAKE_PREFIX_PATH={sdk.path}", "-DCMAKE_EXE_LINKER_FLAGS_RELEASE=-s"]
    built = configure(folder / "source", folder / "build", sdk.toolchain_file, prefix)
    well(ran([tools.program("cmake"), "--install", built, "--prefix", folder / "app"]))
    shutil.copytree(sdk.path / "bin", folder / "app/bin", dirs_exist_ok=True)
    with tarfile.open(folder / "app.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.add(folder / "app", "app")
    # The providers' outputs of a convolution differ in their last bits.
    onnx = engine == "onnxruntime"
    exported = export("conv", format="onnx") if onnx else export("mlp")
    program = load_program(exported)
    inputs = np.load(exported / program.inputs[0].file)
    np.save(folder / "in.npy", inputs)
    (folder / "in.bin").write_bytes(inputs.tobytes())
    executable(folder / "examples.sh", _INSTALLED)
    size = _output_bytes(exported)
    words = [str(size), program.file, *(["--provider=xnnpack", "--provider=cpu"] if onnx else ["--warmup=0"])]
    files = [folder / "app.tar.gz", exported / program.file, folder / "in.npy", folder / "in.bin"]
    done = execute(device, folder / "examples.sh", words, tuple(files), 900)
    assert done.code == 0, done.stderr.decode(errors="replace")
    *sums, printed, said = done.stdout.decode().split("\n")[:-1]
    runner, *others = sums
    if onnx:
        assert others.pop(0) != runner
    assert others == [runner]
    assert runner.split()[0] != hashlib.sha256(b"").hexdigest()
    assert (int(printed), int(said)) == (size / 4, 0)
