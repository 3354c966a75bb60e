"""The wheel ``slipway_runtime``: libslipway's shared library and the Python package over its C API.

One wheel serves every Python from 3.9 on: the package calls the library by ctypes. Its tag says which systems load it;
the checks of the SDK hold the library against the same bounds.
"""

from __future__ import annotations

from pathlib import Path

from core.environment.wheel import record
from core.errors import NotSupportedError
from core.files import disk_errors, write_atomic
from core.paths import ROOT, dist_part
from toolchains.bundle.sdk import Sdk, below, zipped
from toolchains.targets import Target, get_target

PACKAGE = ROOT / "runtime" / "bindings" / "python" / "slipway_runtime"
_PYTHON = ">=3.9"
_NUMPY = "numpy>=1.21"
_WINDOWS = {"x86_64": "win_amd64", "i686": "win32", "aarch64": "win_arm64"}


def tag(target: Target) -> str:
    """The platform of the target's wheels, as PEP 600 names it: ``manylinux_2_28_aarch64``.

    No manylinux covers ARMv6: pip takes ``linux_armv6l`` there, as Raspberry Pi OS's own index has it.

    Raises:
        NotSupportedError: its programs load no shared libraries.
    """
    if target.os == "windows":
        return _WINDOWS[target.machine]
    target = target.with_shared_libraries()
    if target.os == "linux" and target.libc == "glibc":
        systems = "linux" if target.machine == "armv6l" else f"manylinux_{target.max_glibc.replace('.', '_')}"
        return f"{systems}_{target.machine}"
    raise NotSupportedError(
        f"There are no wheels for {target.name}.",
        "its programs are static, and Python loads shared libraries",
        "./inv targets lists the others",
    )


def write_wheel(sdk: Sdk) -> Path:
    """Write the wheel of an SDK to ``dist/wheels``; its path.

    Raises:
        NotSupportedError: the target has no shared library.
    """
    manifest = sdk.manifest
    target = get_target(manifest.target)
    platform = tag(target)
    library = "bin/libslipway.dll" if target.os == "windows" else "lib/libslipway.so.1"
    info = f"slipway_runtime-{manifest.version}.dist-info"
    contents = {f"slipway_runtime/{file.name}": file.read_bytes() for file in sorted(PACKAGE.glob("*.py"))}
    contents["slipway_runtime/py.typed"] = b""
    contents[f"slipway_runtime/{Path(library).name}"] = (sdk.path / library).read_bytes()
    contents |= below(sdk.path / "licenses", f"{info}/licenses")
    contents[f"{info}/sboms/sbom.cdx.json"] = (sdk.path / "sbom.cdx.json").read_bytes()
    contents[f"{info}/METADATA"] = _metadata(manifest.version).encode()
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: slipway\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
    ).encode()
    contents[f"{info}/RECORD"] = record(info, contents)
    wheel = dist_part("wheels") / f"slipway_runtime-{manifest.version}-py3-none-{platform}.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(f"writing {wheel}"):
        write_atomic(wheel, zipped(contents, (".so.1", ".dll")))
    return wheel


def _metadata(version: str) -> str:
    fields = {
        "Metadata-Version": "2.4",
        "Name": "slipway-runtime",
        "Version": version,
        "Summary": "Runs programs that ExecuTorch exported (.pte), with NumPy arrays in and out.",
        "License-Expression": "Apache-2.0",
        "Requires-Python": _PYTHON,
        "Requires-Dist": _NUMPY,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())
