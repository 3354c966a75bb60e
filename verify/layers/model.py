"""What the lab measured: a cell is a layer in one data type on one device, run two ways."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deploy.matrix.model import Measured, Problem

Verdict = Literal["", "faster", "slower", "no difference seen"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Used(_Model):
    """A kernel of the layer."""

    node: str
    kernel: str
    library: str


class Operator(_Model):
    """Times of an operator's calls in milliseconds, in a process of its own with the profile on."""

    name: str
    count: int
    p10: float
    p50: float
    p90: float


class Matched(_Model):
    """An operator in both ways, or in one of them."""

    first: Operator | None = None
    second: Operator | None = None
    by: str = ""
    """How they were matched; empty without a partner."""
    ratio: float | None = None
    """The first way's p50 in parts of the second's; ``None`` without both, and if the second's is 0."""


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
    known_from: str = ""
    """How the kernels are known."""
    processes: tuple[float, ...] = ()
    """The median of each process, in the order of the rounds."""
    executions: int = 0
    """Timed executions of a process."""
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    """Of all timed executions of all processes."""
    spread: float | None = None
    """From p10 to p90, in parts of p50."""
    load_ms: float | None = None
    instructions: Instructions | None = None
    """On an emulated device that counts them."""
    gflops: float | None = None
    """Operations of the layer by p50."""
    gbytes_per_s: float | None = None
    """Activations, weights and output, each once, by p50."""
    verdict: str = ""
    """Against the reference: ``identical``, ``agrees``, ``differs``."""
    max_abs: float | None = None
    outputs: tuple[str, ...] = ()
    """Digests."""


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
    family: str = ""
    shape: str = ""
    scheme: str
    type: str = ""
    """Arm's name for the scheme."""
    operations: int = 0
    bytes: int = 0
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
    compared: Verdict = ""
    instructions: float | None = None
    """The first way's instructions in parts of the second's, the least of each."""
    operators: tuple[Matched, ...] = ()
    """In the order in which the first way's took longest."""
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


class Peak(_Model):
    """What a device can do at most with so many threads.

    Operations in float32 (a product with its sum is two), and bytes read from memory.
    """

    threads: int
    feature: str = ""
    gflops: float
    gbytes_per_s: float


class Lab(_Model):
    """All of it."""

    schema_version: Literal[1] = 1
    name: str
    created: str
    finished: str
    against: str
    """The two ways, in words."""
    rounds: int
    threads: int
    settings: dict[str, Any] = Field(default_factory=dict)
    interrupted: bool = False
    peaks: dict[str, tuple[Peak, ...]] = {}
    """By device."""
    cells: tuple[LayerCell, ...]

    @property
    def counted(self) -> bool:
        """Whether a device counted instructions."""
        return any(way.instructions for cell in self.cells for way in cell.ways)

    @property
    def measured(self) -> list[LayerCell]:
        """Those with a result."""
        return [cell for cell in self.cells if cell.outcome == "measured"]

    def peak(self, device: str) -> Peak | None:
        """What the device can do at most with the threads that the layers had."""
        return next((point for point in self.peaks.get(device, ()) if point.threads == self.threads), None)

    def count(self, verdict: str) -> int:
        """How many cells were compared with that verdict; those with wrong outputs are not among them."""
        return sum(cell.compared == verdict and not cell.differing for cell in self.cells)

    @property
    def wrong(self) -> list[LayerCell]:
        """Those that failed, or whose outputs differ from the reference."""
        return [cell for cell in self.cells if cell.outcome == "failed" or cell.differing]
