"""What the lab measured: a cell is a layer in one data type on one device, run two ways. And its words for people."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deploy.matrix.model import Measured, Problem


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Used(_Model):
    """A kernel of the layer."""

    node: str
    kernel: str
    library: str

    @property
    def short(self) -> str:
        """Its name without what all of a library's have, with KleidiAI's marked."""
        name = self.kernel or self.node
        for prefix in ("kai_run_matmul_clamp_", "kai_run_", "xnn_", "slipway_"):
            name = name.removeprefix(prefix)
        name = name.replace("_ukernel", "").replace("_minmax", "")
        return f"KleidiAI {name}" if self.library == "KleidiAI" else name


class Instructions(_Model):
    """What an emulated device executed in one execution of the program.

    The least is the program's own: whatever else ran on the device at the same time only adds to it.
    """

    least: int
    median: int
    most: int
    executions: int
    """How many were counted."""


class Way(_Model):
    """One of the two ways: what ran, and how fast. Times in milliseconds, of a real device only."""

    name: str
    """``KleidiAI``, ``without KleidiAI``, ``-avx512f``, ``lean``, ``executorch``."""
    engine: str
    settings: dict[str, str] = {}
    """As the runner reports what was in force."""
    kernels: tuple[Used, ...] = ()
    processes: tuple[float, ...] = ()
    """The median of each process, in the order of the rounds."""
    executions: int = 0
    """Timed executions of a process."""
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    """Of all timed executions of all processes."""
    load_ms: float | None = None
    instructions: Instructions | None = None
    """On an emulated device that counts them."""
    verdict: str = ""
    """Against the reference: ``identical``, ``agrees``, ``differs``."""
    max_abs: float | None = None
    outputs: tuple[str, ...] = ()
    """Digests."""

    @property
    def used(self) -> str:
        """Its kernels, each once."""
        return ", ".join(dict.fromkeys(one.short for one in self.kernels))


class State(_Model):
    """The device while the cell was measured: what may explain an outlier."""

    governors: tuple[str, ...] = ()
    warmest: float | None = None
    """Degrees Celsius."""
    load: float | None = None
    """Load average when it began."""
    throttled: tuple[str, ...] = ()


class LayerCell(Measured):
    """One layer in one data type on one device."""

    device: str
    emulated: bool
    target: str
    layer: str
    """``linear_1x256x256``, or the name of the user's own model."""
    scheme: str
    type: str = ""
    """Arm's name for the scheme."""
    outcome: Literal["measured", "failed", "impossible", "not run"] = "not run"
    problem: Problem | None = None
    why_not: str = ""
    first: Way | None = None
    second: Way | None = None
    ratio: float | None = None
    """The first way's time in parts of the second's."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    compared: Literal["", "faster", "slower", "no difference seen"] = ""
    instructions: float | None = None
    """The first way's instructions in parts of the second's, the least of each."""
    same_kernels: bool = False
    same_outputs: bool = False
    """Bit for bit."""
    state: State = State()

    @property
    def ways(self) -> tuple[Way, ...]:
        """Both, where there are any."""
        return tuple(way for way in (self.first, self.second) if way is not None)

    @property
    def differing(self) -> tuple[Way, ...]:
        """The ways whose outputs do not agree with the reference."""
        return tuple(way for way in self.ways if way.verdict == "differs")

    @property
    def answer(self) -> str:
        """What came out, in words."""
        if self.outcome != "measured":
            return self.why_not or self.outcome
        if self.differing:
            return "differs"
        return self.compared or ("the same kernels" if self.same_kernels else "other kernels")

    @property
    def why(self) -> str:
        """What stood in the way of an answer; empty if nothing did."""
        if self.differing:
            return f"outputs of {' and '.join(way.name for way in self.differing)} differ from the reference"
        return self.why_not or (self.problem.what if self.problem else "")

    @property
    def agreement(self) -> str:
        """How both ways' outputs stand to the reference, and to each other."""
        if len(self.ways) < 2:
            return ""
        verdicts = list(dict.fromkeys(way.verdict for way in self.ways))
        if verdicts == ["identical"]:
            return "identical"
        return " / ".join(verdicts) + (", the same bits" if self.same_outputs else "")


class Lab(_Model):
    """All of it."""

    schema_version: Literal[2] = 2
    name: str
    created: str
    finished: str
    against: str
    """The two ways, in words."""
    rounds: int
    threads: int
    settings: dict[str, Any] = Field(default_factory=dict)
    interrupted: bool = False
    cells: tuple[LayerCell, ...]

    @property
    def counted(self) -> bool:
        """Whether a device counted instructions."""
        return any(way.instructions for cell in self.cells for way in cell.ways)

    @property
    def wrong(self) -> list[LayerCell]:
        """Those that failed, or whose outputs differ from the reference."""
        return [cell for cell in self.cells if cell.outcome == "failed" or cell.differing]

    @property
    def about(self) -> str:
        """What was compared and how."""
        return (
            f"Two ways: {self.against}. Ratio: the first way's time in parts of the second's, the median over "
            f"{self.rounds} rounds in turns, with its 99 % interval; {self.threads} thread{'s' * (self.threads != 1)}. "
            "Emulated devices have no times"
            + (
                ": there the instructions of user mode are counted, and the execution with the least of them is the "
                "program's own work. Instructions are not time: one may do the work of many."
                if self.counted
                else "."
            )
        )
