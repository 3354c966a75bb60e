"""What options of several commands share: names for the Tab key, headings of ``--help``, how programs run.

Also the options of ``./inv chat``, half of which ``./inv deploy`` has, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.cli.request import Reported, Request, one_of, option, real, setting, whole
from core.errors import UsageError

WHAT, WHERE = "What to run", "Where, and with which runtime"
HOW, FAILS = "How to run and to measure it", "When it takes long or fails"
CELLS, REPORTS = "Which cells", "Reports and baselines"
COMPARED, ACCURACY = "What is compared", "How accuracy is measured"
VARIANTS = "other partitioners or options besides the usual ones, with blanks between: 'none group=64'"
SAMPLES = "inputs for the reference and to calibrate with: a folder of pictures or .npy, FILE.npz, FILE.py:FUNCTION"


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
SETTING: Any = {"setting": True, "typed": False}
"""Of a number that only ``invoke.yaml`` and ``INVOKE_SLIPWAY_<NAME>`` have."""
DEVICE: Any = option(
    "a device of devices.toml; ./inv devices.list shows them (default: local)",
    setting=True, names=device_names, group=WHERE,
)  # fmt: skip


TIMEOUT: Any = setting("seconds from connecting to the last byte (default: the device's own, else 600)")


class Measured(Reported):
    """The options of commands that run programs on devices and measure them."""

    num_executions: str = option(
        "timed executions (default: 10, in a matrix or a comparison 50; 1 on an emulated device)",
        setting=True,
        group=HOW,
    )
    warmup: str = setting(
        "executions before the timed ones (default: 1, in a matrix or a comparison 5; 0 on an emulated device)"
    )
    cpu_threads: str = setting("threads on the device, 0 for its physical cores (default: 0)")
    cooldown: str = setting("degrees Celsius to which the device may cool down before each run")
    timeout: str = TIMEOUT
    wait: str = setting("seconds to wait while another deploy uses the device (default: 300)")
    retries: str = setting("further attempts after transient errors, such as a broken connection (default: 2)")
    toolchain: str = setting("which compilers build the runtime: zig, gnu or ndk (default: the target's own default)")


class Limited(Measured):
    """The same where the engine lean may be held back."""

    cpu_features: str = option(
        "lean: features of the CPU to leave unused, as a lesser one would: -sme2,-i8mm or -avx512f; "
        "-kleidiai for KleidiAI's kernels",
        group=HOW,
    )


class Sampled(Request):
    """What commands that let a language model write have in common."""

    tokenizer: str = option(
        "the model's tokenizer.json (default: the one beside the program); tokenizer_config.json beside it has the "
        "template of chats",
        group=HOW,
    )
    generate: int = whole("tokens to generate at most (default: 256)", 1, 0, group=HOW)
    temperature: float = real("how freely tokens are chosen; 0: always the likeliest", 0, 0, group=HOW)
    top_k: int = whole("choose among the k likeliest tokens (default: all)", 1, 0, group=HOW)
    top_p: float = real("choose among the likeliest tokens that together have this probability", 0.01, 1, group=HOW)
    seed: int = whole("where the random choice of tokens begins", 0, 0, group=HOW)

    def _check(self) -> None:
        if self.top_p > 1:
            raise UsageError(f"--top-p cannot be {self.top_p:g}.", "it is a probability", "--top-p 0.9")


class Chat(Sampled):
    """Talk with a language model on a device: it stays loaded, and keeps what it has read between your lines.

    /reset forgets the talk, /stats shows the speed, /exit or Ctrl-D ends it. If the connection breaks, the talk goes on
    over a new one.

    Example: ./inv chat --device pi --model smollm2_135m
    """

    letters = False
    resumes = "the same command again; what was built, exported and uploaded is kept"

    model: str = option(
        "a language model: of the zoo, a folder of Hugging Face, a GGUF file or a program (default: smollm2_135m)",
        "smollm2_135m", group=WHAT,
    )  # fmt: skip
    program: str = option("the same as --model, for a program", group=WHAT)
    scheme: str = option("how it is quantized (default: qd8_qb4w)", names=scheme_names, group=WHAT)
    options: str = option("options of the export: context=2048;group=64", group=WHAT)
    device: str = DEVICE
    cpu_threads: str = setting("threads on the device, 0 for its physical cores (default: 0)")
