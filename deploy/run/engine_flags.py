"""Flags of the runner that only some engines have."""

from __future__ import annotations

from core.cli import number
from core.errors import UsageError

ENGINE = "onnxruntime"
PROVIDERS = ("xnnpack", "cpu")


def engine_flags(
    engine: str, *, provider: str = "", ort_threads: str = "", ort_spinning: bool = False, profile: bool = False
) -> list[str]:
    """The flags for the requested settings of ``engine``.

    Raises:
        UsageError: a setting for another engine than ONNX Runtime, or a senseless value.
    """
    if provider and provider not in PROVIDERS:
        raise UsageError(
            f"There is no provider {provider!r}.", f"they are {', '.join(PROVIDERS)}", "--provider xnnpack"
        )
    flags = []
    if provider:
        flags.append(f"--provider={provider}")
    if ort_threads:
        flags.append(f"--ort_threads={number('ort-threads', ort_threads, 1)}")
    if ort_spinning:
        flags.append("--ort_spinning")
    if flags and engine != ENGINE:
        names = ", ".join(flag.partition("=")[0].replace("_", "-") for flag in flags)
        raise UsageError(
            f"{names} {'is' if len(flags) == 1 else 'are'} for the engine {ENGINE}.",
            f"the engine here is {engine or 'the default one of the target, for .pte files'}",
            f"--engine {ENGINE}, or without {names}",
        )
    # Every engine has one.
    return [*flags, "--profile"] if profile else flags
