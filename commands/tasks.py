"""Tasks of commands that combine packages; the others are in ``tasks.py``."""

from __future__ import annotations

from typing import Any

from commands.groups import COMPARE
from core.cli.task import JSON, Words, task


@task(
    auto_shortflags=False,
    groups=COMPARE,
    help={
        "model": "a model of the zoo, or yours as path/to/file.py:make_model",
        "schemes": "comma-separated quantization schemes, or 'all' (default: all that make sense)",
        "variants": "other partitioners or options besides the usual ones, with blanks between: 'none group=64'",
        "engines": "comma-separated names, 'default' or 'all' (default: each target's own default)",
        "devices": "comma-separated names or patterns (default: local)",
        "data": "samples: FILE.npz, a folder of pictures or .npy, or FILE.py:FUNCTION (default: the example inputs)",
        "samples": "how many samples at most (default: 100, and 10 on emulated devices)",
        "metric": "FILE.py:FUNCTION, called with all outputs and all labels; it returns a number, more is better",
        "rounds": "processes of each program on a real device, in turns (default: 1)",
        "num-executions": "timed executions (default: 50; 1 on emulated devices)",
        "warmup": "executions before the timed ones (default: 5; 0 on emulated devices)",
        "cpu-threads": "threads on the devices, 0 for their physical cores (default: 0)",
        "pin-governor": "CPU frequency governor for the runs, such as performance; set back afterwards",
        "timeout": "seconds for one deploy, and for ten samples (default: each device's own, else 600)",
        "wait": "seconds to wait while another deploy uses a device (default: 300)",
        "retries": "further attempts after transient errors, such as a broken connection (default: 2)",
        "toolchain": "which compilers build (default: each target's own default)",
        "json": JSON,
    },
)
def compare(
    c: Any,
    model: str = "",
    schemes: str = "",
    variants: str = "",
    engines: str = "",
    devices: str = "",
    data: str = "",
    samples: str = "",
    metric: str = "",
    rounds: str = "",
    num_executions: str = "",
    warmup: str = "",
    cpu_threads: str = "",
    pin_governor: str = "",
    timeout: str = "",
    wait: str = "",
    retries: str = "",
    toolchain: str = "",
    json: bool = False,
) -> None:
    """Compare a model's quantization schemes: accuracy, size, latency, load time and memory in one table.

    Accuracy is measured on the devices: against the float model's outputs, and with labels against those. The Pareto
    front is marked, and a report with plots is in dist/matrix/compare-MODEL. Exit code 0: every program agrees with
    its reference.

    Example: ./inv compare --model mobilenet_v2 --devices local,pi
    """
    words = Words(c, locals())
    from commands import compare as command

    command.run(words)


@task(
    auto_shortflags=False,
    help={
        "output": "the folder for the profiles; it is made if necessary",
        "target": "comma-separated targets (default: all that this machine compiles for)",
        "toolchain": "which compilers: zig, gnu or ndk (default: each target's own default)",
        "json": JSON,
    },
)
def profiles(c: Any, output: str = "", target: str = "", toolchain: str = "", json: bool = False) -> None:
    """Write Conan's profiles into a folder of yours: one for each target, and one for this machine.

    They are those that Slipway's own builds use, so packages from a remote fit them. A file of the same name that
    ./inv profiles did not write is not replaced.

    Example: ./inv profiles --output profiles --target linux-arm64
    """
    words = Words(c, locals(), own=["target"])
    from commands import profiles as command

    command.run(words)
