"""How a program is to run, apart from what runs where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How to run."""

    executions: int = 10
    warmup: int = 1
    threads: int = 0
    etdump: bool = False
    keep_run: bool = False
    wait: float = 300.0
    """Seconds to wait for a device that another deploy uses."""
    engine_flags: tuple[str, ...] = ()
    """The runner's, of those that only some engines have."""
    governor: str = ""
    """CPU frequency governor for the run, set back afterwards."""
    cores: str = ""
    """Cores to keep the run to, ``0,2-3``."""
    cooldown: float = 0.0
    """Degrees Celsius to which the device may cool down first; 0 for any."""
