"""Partitioners of other backends than XNNPACK: what they need besides the exporter, and how they are made.

Imports the exporter, but in functions only.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

from core import environment
from core.errors import ConfigError

ETHOS_U = "ethos-u55-128"


def enter(name: str) -> None:
    """Make a set of packages importable in this process, after the exporter's own; it is installed the first time.

    Raises:
        HostError: it could not be installed.
    """
    folder = environment.apart(name)
    if os.fspath(folder) not in sys.path:
        sys.path.append(os.fspath(folder))
        importlib.invalidate_caches()
    # Upstream's runtime opens OpenVINO's library by this name, if the process has it from its start.
    for library in (folder / "openvino" / "libs").glob("libopenvino_c.so*"):
        os.environ.setdefault("OPENVINO_LIB_PATH", os.fspath(library))
    # What upstream starts by name: Arm's converter of TOSA to VGF.
    programs = folder / "model_converter" / "binaries" / "bin"
    if programs.is_dir() and os.fspath(programs) not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join(filter(None, [os.environ.get("PATH"), os.fspath(programs)]))
        for program in programs.iterdir():
            program.chmod(0o755)


def openvino(accelerator: str = "CPU") -> Any:
    """Upstream's partitioner for OpenVINO; ``accelerator`` is a device of OpenVINO: CPU, GPU, NPU."""
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    # The package's __init__ imports a quantizer, and that one NNCF, scikit-learn and the LLM tools: 500 MB that no
    # partitioner uses.
    base = "executorch.backends.openvino.quantizer"
    if base not in sys.modules:
        unused, module = types.ModuleType(base), types.ModuleType(f"{base}.quantizer")
        unused.__path__ = []
        module.OpenVINOQuantizer = None  # type: ignore[attr-defined]
        sys.modules[base], sys.modules[module.__name__] = unused, module
    partitioner = importlib.import_module("executorch.backends.openvino.partitioner")
    return partitioner.OpenvinoPartitioner([CompileSpec("device", accelerator.encode())])


def _ethos_u_spec(accelerator: str) -> Any:
    ethosu = importlib.import_module("executorch.backends.arm.ethosu")
    try:
        return ethosu.EthosUCompileSpec(accelerator)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"There is no Ethos-U called {accelerator}.", str(error), f"--options accelerator={ETHOS_U}", [accelerator]
        ) from error


def ethos_u(accelerator: str = ETHOS_U) -> Any:
    """Upstream's partitioner for Arm's NPUs; ``accelerator`` as Vela names them: ethos-u55-128, ethos-u85-256.

    Raises:
        ConfigError: Vela knows no such accelerator.
    """
    return importlib.import_module("executorch.backends.arm.ethosu").EthosUPartitioner(_ethos_u_spec(accelerator))


def ethos_u_quantizer(accelerator: str = "") -> Any:
    """Upstream's PT2E quantizer for the accelerator: int8 with a scale per output channel.

    Raises:
        ConfigError: Vela knows no such accelerator.
    """
    enter("arm")
    quantizers = importlib.import_module("executorch.backends.arm.quantizer")
    quantizer = quantizers.EthosUQuantizer(_ethos_u_spec(accelerator or ETHOS_U))
    return quantizer.set_global(quantizers.get_symmetric_quantization_config())


def vgf() -> Any:
    """Upstream's partitioner for VGF, which Arm's ML extensions for Vulkan run."""
    module = importlib.import_module("executorch.backends.arm.vgf")
    return module.VgfPartitioner(module.VgfCompileSpec())
