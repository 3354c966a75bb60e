"""How a program runs on a device: one frozen object, read once, passed whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.cli.request import number
from core.errors import UsageError, nearest
from core.strict_json import Frozen
from deploy.devices.inventory import Device

ENGINE = "onnxruntime"
THREADS = 1024
"""Threads that a runner's pool has at most (kMostThreads in runtime/base/platform.h)."""
PROVIDERS = ("xnnpack", "cpu")
LEAN = "lean"
KLEIDIAI = "-kleidiai"
"""Of ``--cpu-features``: KleidiAI's kernels, which the runner has a flag of its own for."""
CPU_FEATURES = (
    *("neon", "vfpv4", "fp16", "bf16", "dotprod", "i8mm", "sve", "sve2", "sme", "sme2"),
    *("ssse3", "sse4_1", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx_vnni_int8", "avx512f", "avx512bw"),
    *("avx512vbmi", "avx512_vnni", "avx512_fp16", "gfni", "amx_int8"),
)
"""Features by which kernels are chosen: the names of ``runtime/engines/lean/xnnpack/cpu_features.cpp``."""
_ALIASES = {
    "asimd": "neon", "simd": "neon", "neonfma": "vfpv4", "asimdhp": "fp16", "fphp": "fp16", "asimddp": "dotprod",
    "dot": "dotprod", "fma3": "fma", "avx512": "avx512f", "avx512dq": "avx512bw", "avx512vl": "avx512bw",
    "avx512skx": "avx512bw", "avx512vnnigfni": "gfni", "amx": "amx_int8", "amxtile": "amx_int8",
}  # fmt: skip
"""Other names of theirs, in /proc/cpuinfo and in compilers' flags; plain ones."""


def engine_flags(engine: str, *, provider: str = "", profile: bool = False) -> list[str]:
    """The flags for the requested settings of ``engine``.

    Raises:
        UsageError: a provider that there is not, or for another engine than ONNX Runtime.
    """
    if provider and provider not in PROVIDERS:
        raise UsageError(
            f"There is no provider {provider!r}.", f"they are {', '.join(PROVIDERS)}", "--provider xnnpack"
        )
    if provider and engine != ENGINE:
        raise UsageError(
            f"--provider is for the engine {ENGINE}.",
            f"the engine here is {engine or 'the default one of the target, for .pte files'}",
            f"--engine {ENGINE}, or without --provider",
        )
    return [*([f"--provider={provider}"] if provider else []), *(["--profile"] if profile else [])]


def cpu_features(text: str) -> str:
    """The value of ``--cpu-features`` in the runner's words: ``-sme2,-i8mm``, each feature once, and `KLEIDIAI`.

    Raises:
        UsageError: a word without its minus, or a feature that does not exist.
    """
    known = {_plain(name): name for name in (*CPU_FEATURES, KLEIDIAI[1:])} | _ALIASES
    found: dict[str, None] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        name = _plain(word.removeprefix("-"))
        if not word.startswith("-") or name not in known:
            raise UsageError(
                f"--cpu-features cannot be {text!r}.",
                "features can only be left unused: each has a minus before it, and is one of "
                f"{', '.join(CPU_FEATURES)}, and kleidiai",
                f"--cpu-features=-{known[nearest(name, known, 0)]}",
                [word],
            )
        found[f"-{known[name]}"] = None
    return ",".join(found)


def why_no_limits(engine: str, features: str) -> str:
    """Why ``engine`` cannot do without kernels; empty if it can, or need not."""
    return f"the engine {engine} cannot leave CPU features unused" if features and engine != LEAN else ""


def check_limits(engine: str, features: str) -> None:
    """Refuse an engine that cannot do without kernels.

    Raises:
        UsageError: it cannot.
    """
    if why := why_no_limits(engine, features):
        raise UsageError(
            f"--cpu-features goes with the engine {LEAN}.",
            f"{why}: its kernels are chosen inside a library that has no switch for it",
            f"--engine {LEAN}",
            [engine],
        )


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "")


WORDS = (
    *("num_executions", "warmup", "cpu_threads", "timeout", "wait", "retries"),
    *("cpu_affinity", "cooldown", "cpu_features"),
)
"""Words of the command line that `Settings.parse` reads; ``invoke.yaml`` and the environment have them, too."""
RETRIES = 2
EXECUTIONS = (10, 1)
"""Timed executions and warm-up, for one deploy."""
ONCE = {"num_executions": 1, "warmup": 0, "etdump": False, "values": False, "cooldown": 0.0}
"""Changes to settings for a run that only gives outputs."""
EMULATED = (1, 0)
"""The same on an emulated device, whose times are not latency figures."""


class Turn(NamedTuple):
    """What the runner says when a text has ended and it waits for the next one; the counts are of all texts so far."""

    ended: str
    """Why: ``stop``, ``length`` or ``context``."""
    position: int
    """Tokens that the model holds."""
    context: int
    """Tokens that it can hold; 0: unknown."""
    prompt_tokens: int
    prompt_ms: float
    tokens: int
    """Of each text, those after its first."""
    token_ms: float


class Prompt(Frozen):
    """What a language model reads, as numbers of a tokenizer, and how it goes on."""

    tokens: Path
    """``.npy`` file, int64 ``[n]``."""
    vocabulary: int
    """Tokens that the tokenizer has."""
    flags: tuple[str, ...]
    """The runner's, for how many tokens are generated and how each is chosen."""
    turn: Callable[[Turn], Sequence[int] | None] | None = None
    """Called when a text has ended: how many of the tokens so far stay, and those that come next; ``None``: no more."""


class Settings(Frozen):
    """How to run. The defaults are those of one deploy to a real device."""

    num_executions: int | None = None
    """Timed executions; `on` fills in the usual number."""
    warmup: int | None = None
    """Executions before them."""
    threads: int = 0
    """Threads on the device; 0: the runner's choice (physical cores)."""
    timeout: float = 0
    """Seconds from the first attempt to connect to the last byte; 0 takes the device's own."""
    wait: float = 300.0
    """Seconds to wait for a device that another deploy uses; they do not count towards ``timeout``."""
    retries: int = RETRIES
    """Further attempts, each on a connection of its own, after a transient error."""
    cpu_affinity: str = ""
    """Cores to keep the run to, ``0,2-3``."""
    cooldown: float = 0.0
    """Degrees Celsius to which the device may cool down before the run; 0 does not wait."""
    etdump: bool = False
    """Bring back ``run.etdp``."""
    values: bool = False
    """Bring back ``run.values``, too: what each operator gave, in the run's single execution."""
    weights_cache: bool = True
    """Let the engine lean keep packed weights on the device, where the device's table allows it."""
    engine_flags: tuple[str, ...] = ()
    """The runner's, of those that only some engines have: ``--provider=cpu``."""
    cpu_features: str = ""
    """Features of the CPU that the engine lean leaves unused: ``-sme2,-i8mm``; ``-kleidiai`` is among them."""
    method: str = ""
    """Which of the program's methods; empty: ``forward``, or the only one."""
    data: Path | None = None
    """The ``.ptd`` file of the program's weights; ``None``: the one beside it, if it needs one."""
    inputs: tuple[Path, ...] = ()
    """``.npy`` files to feed it, for a program without a description."""
    input_shapes: str = ""
    """Shapes to fill with ones without ``inputs``: ``1x3x224x224``. To these, open sizes of an ``.onnx`` are fixed."""
    expected: tuple[Path, ...] = ()
    """``.npy`` files to compare the outputs with."""
    text: Prompt | None = None
    """What a language model reads and how it goes on, in place of inputs."""

    @classmethod
    def parse(cls, words: Mapping[str, Any], **others: Any) -> Settings:
        """From the words of the command line (`WORDS`; empty ones are left out) and ``others`` that need no check.

        Raises:
            UsageError: a word with a senseless value.
        """
        warmup = number("warmup", words.get("warmup"), 0, -1)
        return cls(
            num_executions=number("num-executions", words.get("num_executions"), 1, 0) or None,
            warmup=None if warmup < 0 else warmup,
            threads=number("cpu-threads", words.get("cpu_threads"), 0, most=THREADS),
            timeout=number("timeout", words.get("timeout"), 1, 0, whole=False, typed=False),
            wait=number("wait", words.get("wait"), 0, 300, whole=False, typed=False),
            retries=number("retries", words.get("retries"), 0, RETRIES, typed=False),
            cpu_affinity=str(words.get("cpu_affinity") or ""),
            cooldown=number("cooldown", words.get("cooldown"), 1, 0, whole=False),
            cpu_features=cpu_features(words.get("cpu_features") or ""),
            **others,
        )

    def on(self, device: Device, usual: tuple[int, int] = EXECUTIONS) -> Settings:
        """The same with numbers of executions: those given, else ``usual`` ones, or an emulated device's."""
        executions, warmup = self.executions(EMULATED if device.emulated else usual)
        return self.model_copy(update={"num_executions": executions, "warmup": warmup})

    def executions(self, usual: tuple[int, int] = EXECUTIONS) -> tuple[int, int]:
        """Timed ones and those before them: those given, else the ``usual`` ones."""
        executions, warmup = usual
        return (
            executions if self.num_executions is None else self.num_executions,
            warmup if self.warmup is None else self.warmup,
        )

    @property
    def limits(self) -> list[str]:
        """The runner's flags for the kernels that the run does without."""
        names = [name for name in self.cpu_features.split(",") if name]
        others = ",".join(name for name in names if name != KLEIDIAI)
        return [*["--kleidiai=off"] * (KLEIDIAI in names), *[f"--cpu_features={others}"] * bool(others)]


DEFAULT = Settings()
