"""The two ways in which the lab runs each layer."""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import UsageError
from deploy.run.engine_flags import LEAN, cpu_features
from toolchains.targets import ENGINES, Target

KLEIDIAI, SAME = "kleidiai", "same"
_LESSER = {"x86_64": "-avx512f", "i686": "-avx"}
"""What an x86 CPU of some years ago lacks, by the machine of the target."""


@dataclass(frozen=True)
class Choice:
    """One way: an engine, and the kernels that it does without."""

    name: str
    engine: str = LEAN
    kleidiai: str = ""
    cpu_features: str = ""


@dataclass(frozen=True)
class Pair:
    """Two ways, and what their comparison answers."""

    about: str
    first: Choice
    second: Choice

    @property
    def ways(self) -> tuple[Choice, Choice]:
        """Both."""
        return self.first, self.second


def pair_for(target: Target, against: str) -> Pair:
    """The two ways for ``--against``; empty: what makes sense for the target.

    Raises:
        UsageError: a word that names no way, or one that the target does not have.
    """
    against = against or usual(target)
    if against == KLEIDIAI:
        if not has_kleidiai(target):
            raise UsageError(
                f"Bundles for {target.name} have no KleidiAI.", "it is for 64-bit Arm",
                f"--against {usual(target)}, or --against executorch",
            )  # fmt: skip
        return Pair(
            "with KleidiAI's kernels, and without",
            Choice("KleidiAI", kleidiai="on"),
            Choice("without KleidiAI", kleidiai="off"),
        )
    if against == SAME:
        return Pair("the same twice: what is reported is chance", Choice("once"), Choice("again"))
    if against in ENGINES and against != "onnxruntime":
        return Pair(f"the engine lean, and {against}", Choice(LEAN), Choice(against, engine=against))
    if against.startswith("-"):
        mask = cpu_features(against)
        return Pair(
            f"with all features of the CPU, and without {mask.replace('-', '').replace(',', ', ')}",
            Choice("all features"), Choice(mask, cpu_features=mask),
        )  # fmt: skip
    raise UsageError(
        f"--against cannot be {against!r}.",
        "it is kleidiai, features of the CPU to leave unused (-avx512f), an engine (executorch), or same",
        f"--against={usual(target)}",
        [against],
    )


def has_kleidiai(target: Target) -> bool:
    """Whether bundles with the engine lean have KleidiAI's kernels there."""
    return target.machine == "aarch64"


def usual(target: Target) -> str:
    """What ``--against`` means where it is not given."""
    if has_kleidiai(target):
        return KLEIDIAI
    if target.machine in _LESSER:
        return _LESSER[target.machine]
    return SAME
