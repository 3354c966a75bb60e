"""Flags of the runner that only some engines have."""

from __future__ import annotations

from core.errors import UsageError, nearest

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
    for word in filter(None, text.split(",")):
        name = word.strip().removeprefix("-")
        if not word.strip().startswith("-") or not name:
            raise UsageError(
                f"--cpu-features cannot be {text!r}.",
                "features can only be left unused: each has a minus before it",
                f"--cpu-features=-{name or 'i8mm'}",
            )
        if _plain(name) not in known:
            raise UsageError(
                f"There is no CPU feature {name!r}.",
                f"there are {', '.join(CPU_FEATURES)}, and kleidiai",
                f"--cpu-features=-{known[nearest(_plain(name), known, 0)]}",
                [name],
            )
        found[f"-{known[_plain(name)]}"] = None
    return ",".join(found)


def limit_flags(features: str) -> list[str]:
    """The runner's flags for checked features."""
    names = [name for name in features.split(",") if name]
    others = ",".join(name for name in names if name != KLEIDIAI)
    return [*["--kleidiai=off"] * (KLEIDIAI in names), *[f"--cpu_features={others}"] * bool(others)]


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
