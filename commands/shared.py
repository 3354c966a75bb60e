"""What options of several commands share: names for the Tab key, headings of ``--help``, how programs run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.cli.request import Reported, one_of, option, setting

WHAT, WHERE = "What to run", "Where, and with which runtime"
HOW, FAILS = "How to run and to measure it", "When it takes long or fails"
CELLS, REPORTS = "Which cells", "Reports and baselines"
COMPARED, ACCURACY = "What is compared", "How accuracy is measured"
VARIANTS = "other partitioners or options besides the usual ones, with blanks between: 'none group=64'"
SAMPLES = "inputs to calibrate with and to check on: a folder of pictures or .npy, FILE.npz, FILE.py:FUNCTION"


def device_names() -> Iterable[str]:
    """Those of the inventory."""
    from deploy.devices.inventory import load_devices

    return load_devices()


def model_names() -> Iterable[str]:
    """Those of the zoo."""
    from models.text.source import zoo
    from models.zoo import load_zoo

    return [*load_zoo(), *zoo()]


def scheme_names() -> Iterable[str]:
    """How they can be quantized."""
    from models.zoo.schemes import load_schemes

    return load_schemes()


def target_names() -> Iterable[str]:
    """What can be built for."""
    from toolchains.targets import load_targets

    return load_targets()


ENGINES = one_of("executorch", "lean", "onnxruntime")
SEVERAL_ENGINES = one_of("executorch", "lean", "onnxruntime", "default", "all")


DEVICE: Any = option(
    "a device of devices.toml; ./inv devices.list shows them (default: local)",
    setting=True, names=device_names, group=WHERE,
)  # fmt: skip


class Measured(Reported):
    """The options of commands that run programs on devices and measure them."""

    num_executions: str = option(
        "timed executions (default: 10, in a matrix or a comparison 50; 1 on an emulated device)",
        setting=True,
        group=HOW,
    )
    warmup: str = option(
        "executions before the timed ones (default: 1, in a matrix or a comparison 5; 0 on an emulated device)",
        setting=True, group=HOW,
    )  # fmt: skip
    cpu_threads: str = option("threads on the device, 0 for its physical cores (default: 0)", setting=True, group=HOW)
    pin_governor: str = setting("CPU frequency governor for the run, such as performance; set back afterwards")
    cooldown: str = option("degrees Celsius to which the device may cool down before each run", setting=True, group=HOW)
    timeout: str = option(
        "seconds from connecting to the last byte (default: the device's own, else 600)", setting=True, group=FAILS
    )
    wait: str = option("seconds to wait while another deploy uses the device (default: 300)", setting=True, group=FAILS)
    retries: str = setting("further attempts after transient errors, such as a broken connection (default: 2)")
    toolchain: str = setting("which compilers build the runtime: zig, gnu or ndk (default: the target's own default)")


class Limited(Measured):
    """The same where the engine lean may be held back."""

    kleidiai: str = setting("lean: on or off, to compute with KleidiAI's kernels or without (default: on)")
    cpu_features: str = option(
        "lean: features of the CPU to leave unused, as a lesser one would: -sme2,-i8mm or -avx512f", group=HOW
    )
