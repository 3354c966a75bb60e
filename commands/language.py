"""What commands that let a language model write have in common, and the options of ``./inv chat``."""

from __future__ import annotations

from commands.shared import DEVICE, HOW, WHAT, scheme_names
from core.cli.request import Request, option, real, setting, whole
from core.errors import UsageError


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
