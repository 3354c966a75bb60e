"""How the device was doing around a run: clocks, governors, temperatures, throttling; and the cores that it is kept to.

A script starts the runner and reads the device's state right before and right after it, in the same round trip.

Sources: Documentation/admin-guide/pm/cpufreq.rst and driver-api/thermal/sysfs-api.rst of Linux; the bits of a
Raspberry Pi's ``get_throttled`` in its documentation of ``vcgencmd``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field

from core.errors import UsageError
from core.plain import plain
from core.strict_json import Frozen
from deploy.scripts import script
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import natural

SYSFS = "/sys"

_LINE = 1024
"""Characters of a line that a device reports about itself."""
_MOST = 1 << 50
"""The largest plausible number of kilohertz, steps, times or kilobytes."""

_ZONE = re.compile(
    r"zone (-?[0-9]{1,9}) (.*\S) *|Temperature\{mValue=(-?[0-9]{1,9}(?:\.[0-9]{1,9})?),.*?mName=([^,}]*).*\}"
)
"""Linux counts in thousandths of a degree Celsius; Android's thermal service in whole ones."""
_COLDEST, _WARMEST = -60.0, 200.0
"""Zones outside of this range measure something else, or are switched off."""
_COOLED = re.compile("cpu|processor", re.IGNORECASE)
_THROTTLED = re.compile(r"throttled(?:=| +)(?:0x)?([0-9a-fA-F]{1,8})")
_BITS = {0: "under-voltage", 1: "clock capped", 2: "throttled", 3: "soft temperature limit"}
"""Of a Raspberry Pi's ``get_throttled``: now; 16 higher: since it was switched on."""


@dataclass(frozen=True)
class Files:
    """The files of a run: their folder, and how many bytes of its results come back with its end."""

    used: str = ""
    """Absolute folder on the device of the program and its inputs."""
    marker: str = ""
    """A word that programs do not print."""
    most: int = 0
    """Bytes of small files together."""

    def brought(self, stdout: bytes) -> dict[str, bytes]:
        """The small files by name; empty if they did not arrive complete."""
        names, _, data = stdout.partition(f"\n@@files {self.marker}\n".encode())[2].partition(b"@@data\n")
        found: dict[str, bytes] = {}
        at = 0
        for line in names.decode(errors="replace").splitlines():
            number, _, name = line.partition(" ")
            size = natural(number)
            if size is None or not name or at + size > len(data) or name in found:
                return {}
            found[name] = data[at : at + size]
            at += size
        return found if at == len(data) else {}


class Snapshot(Frozen):
    """The device's state at one moment; unknown values are empty or ``None``."""

    governors: tuple[str, ...] = ()
    """Of its cores, each named once."""
    frequencies_khz: dict[str, int] = Field(default_factory=dict)
    """By core number."""
    temperatures_c: dict[str, float] = Field(default_factory=dict)
    """By zone; a second zone of a name is ``name#2``."""
    cooling: int | None = None
    """Steps by which the system slows its cores down now, summed."""
    throttle_count: int | None = None
    """Times that cores were slowed down for heat since the start (x86)."""
    throttled_bits: int | None = None
    """A Raspberry Pi's ``get_throttled``."""
    load1: float | None = None
    memory_available: int | None = None
    """Bytes."""

    @property
    def hottest_c(self) -> float | None:
        """Degrees Celsius of the warmest zone."""
        return max(self.temperatures_c.values(), default=None)


class Conditions(Frozen):
    """Around one run."""

    before: Snapshot = Snapshot()
    after: Snapshot = Snapshot()
    throttled: tuple[str, ...] = ()
    """Signs that the device throttled itself: the times of such a run mean little."""
    affinity: str = ""
    ran_seconds: float | None = None
    """From the program's start to its end, by the device's own clock; loading its libraries is a part of it."""
    cooled_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """Requested settings that could not be made."""


def mask_of(cores: str) -> str:
    """``0,2-3`` as the hexadecimal mask that every ``taskset`` takes; empty for none.

    Raises:
        UsageError: it is not a list of cores.
    """
    mask = 0
    for part in filter(None, cores.replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"--cpu-affinity {cores!r} is not a list of cores.", "", "--cpu-affinity 0,2-3")
        for core in range(int(match[1]), int(match[2] or match[1]) + 1):
            mask |= 1 << core
    return f"{mask:x}" if mask else ""


def wrapped(argv: Sequence[str], cores: str, files: Files = Files()) -> list[str]:
    """``argv`` under ``run.sh``."""
    settings = [SYSFS, mask_of(cores), files.marker, str(files.most), files.used]
    return ["sh", "-c", script("run"), "slipway", *settings, *argv]


def snapshot(text: str, part: str = "now") -> Snapshot:
    """The block ``part`` of what the scripts print."""
    governors: dict[str, None] = {}
    frequencies: dict[str, int] = {}
    zones: dict[str, float] = {}
    sums: dict[str, int] = {}
    bits, load, memory = None, None, None
    inside = False
    for line in plain(text).split("\n"):
        if line.startswith("@@"):
            inside = line == f"@@{part}"
            continue
        words = line[:_LINE].split()
        if inside and (found := _THROTTLED.fullmatch(line.strip())):
            bits = int(found[1], 16)
        if not inside or len(words) < 2:
            continue
        key, value = words[0], words[1]
        count = natural(value, _MOST)
        if key == "cpu" and len(words) == 4 and (clock := natural(words[2], _MOST)) is not None:
            frequencies[value] = clock
            governors[words[3]] = None
        elif (zone := _ZONE.fullmatch(line[:_LINE])) is not None:
            name, degrees = zone[2] or zone[4], float(zone[3]) if zone[3] else int(zone[1]) / 1000
            if _COLDEST < degrees < _WARMEST:
                number = sum(each.partition("#")[0] == name for each in zones) + 1
                zones[name if number == 1 else f"{name}#{number}"] = degrees
        elif count is not None and (key == "count" or (key == "cooling" and _COOLED.search(line))):
            sums[key] = sums.get(key, 0) + count
        elif key == "load":
            load = float(value) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) else None
        elif key == "MemAvailable:" and count is not None:
            memory = count * 1024
    return Snapshot(
        governors=tuple(governors),
        frequencies_khz=frequencies,
        temperatures_c=zones,
        cooling=sums.get("cooling"),
        throttle_count=sums.get("count"),
        throttled_bits=bits,
        load1=load,
        memory_available=memory,
    )


def signs(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Signs that the device throttled itself between two moments."""
    now = after.throttled_bits or 0
    new = now & ~(before.throttled_bits or 0)
    found = [name for bit, name in _BITS.items() if now >> bit & 1 or new >> (bit + 16) & 1]
    if (after.throttle_count or 0) > (before.throttle_count or 0):
        found.append(f"{(after.throttle_count or 0) - (before.throttle_count or 0)} times too hot")
    if (after.cooling or 0) > 0:
        found.append("cooling by lower clocks")
    return tuple(found)


def conditions(text: str, cores: str, cooled: float) -> Conditions:
    """The conditions in ``run.sh``'s output, with the requested settings."""
    before, after = snapshot(text, "before"), snapshot(text, "after")
    kept = bool(cores) and "note affinity set" in text.splitlines()
    ran = re.search(r"^ran ([0-9]{1,12}\.[0-9]{1,6}) ([0-9]{1,12}\.[0-9]{1,6})$", text, re.MULTILINE)
    return Conditions(
        before=before,
        after=after,
        throttled=signs(before, after),
        affinity=cores if kept else "",
        ran_seconds=round(float(ran[2]) - float(ran[1]), 2) if ran else None,
        cooled_seconds=round(cooled, 1),
        notes=("not kept to cores: the device has no taskset",) if cores and not kept else (),
    )


_OFTEN = 2.0
"""Seconds between two looks at the temperature."""


def cool_down(transport: Transport, name: str, degrees: float, say: Callable[[str], None], deadline: Deadline) -> float:
    """Wait until the device's warmest zone has cooled down to ``degrees`` (Celsius); return the seconds waited.

    Raises:
        DeadlineError: it does not cool down in time.
    """
    begun = time.monotonic()
    while True:
        words = ["sh", "-c", script("state"), "slipway", SYSFS]
        now = snapshot(run(transport, words, deadline=deadline).text).hottest_c
        if now is None:
            say(f"{name} does not report a temperature: not waiting")
        if now is None or now <= degrees:
            return time.monotonic() - begun
        deadline.check(f"{name} was at {now:.1f} °C, waiting for {degrees:g} °C")
        time.sleep(deadline.left(_OFTEN))
