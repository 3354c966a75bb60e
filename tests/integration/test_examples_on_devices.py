"""libslipway's examples on virtual devices, beside pte_runner: the same bits. CI runs C and C++ on the virtual Pi alone
(test_deploy_pi.py)."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from core.formats.bundle import runner_in
from core.formats.program import load_program
from deploy.devices.inventory import FILE, get_device
from deploy.run.execute import execute
from models.export import export
from tests.support import examples
from toolchains.bundle import builder
from toolchains.bundle.sdk import build_sdk
from toolchains.debian import packages as debian

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export, pytest.mark.long]

_SCRIPT = """\
#!/bin/sh
set -e
chmod +x pte_runner
./pte_runner --model_path=model.pte --inputs=in.npy --output_file=out >/dev/null
tar -xf python.tar
here=$PWD/usr/lib
export PYTHONPATH="$here/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$here/aarch64-linux-gnu:$here/aarch64-linux-gnu/blas:$here/aarch64-linux-gnu/lapack"
usr/bin/python3.11 run_once.py ./libslipway.so.1 model.pte in.npy python.npy
cmp out0.npy python.npy
sha256sum <python.npy
"""


def test_c_and_cpp_on_the_pi_zero(tmp_path: Path) -> None:
    examples.run_on("pi-zero", tmp_path)


def test_python_on_the_pi(tmp_path: Path) -> None:
    """Debian's own Python and NumPy come along: the virtual Pi has neither."""
    device = get_device("pi", FILE)
    exported = export("mlp", "fp32")
    shutil.copy(exported / load_program(exported).file, tmp_path / "model.pte")
    np.save(tmp_path / "in.npy", np.random.default_rng(5).standard_normal((8, 64)).astype(np.float32))
    root = debian.tree("bookworm", "arm64", ["python3-minimal", "python3-numpy", "libstdc++6"], closure=True)
    with tarfile.open(tmp_path / "python.tar", "w") as tar:
        # What the device has of its own, its C library above all, stays its own.
        for name in ("usr/bin/python3.11", "usr/lib/python3.11", "usr/lib/python3", "usr/lib/aarch64-linux-gnu"):
            tar.add(root / name, name, filter=_needed)
    (tmp_path / "python.sh").write_text(_SCRIPT, encoding="utf-8")
    (tmp_path / "python.sh").chmod(0o755)
    bundle, sdk = builder.build(device.target, "lean"), build_sdk(device.target)
    names = ("model.pte", "in.npy", "python.tar")
    files = [bundle.path / runner_in(bundle.path), sdk.path / "lib/libslipway.so.1", examples.EXAMPLES / "run_once.py"]
    done = execute(device, tmp_path / "python.sh", [], (*files, *(tmp_path / name for name in names)), 900)
    assert done.code == 0, done.stderr.decode(errors="replace")
    assert len(done.stdout.split()[0]) == 64


def _needed(item: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out NumPy's tests and the C library."""
    name = Path(item.name)
    own = name.name.startswith(("libc.so", "libm.so", "ld-linux", "libpthread", "libdl"))
    return None if own or "tests" in name.parts or "include" in name.parts else item
