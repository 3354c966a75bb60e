"""Everything that a device prints, damaged at random: our own error or a value, never anything else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from core.errors import SlipwayError
from deploy.devices import conditions
from deploy.devices.probe import parse
from deploy.store import gc
from deploy.transport.adb.server import parse_devices
from deploy.transport.base import Completed
from tests.unit.test_adb import LISTING as DEVICES
from tests.unit.test_probe import PHONE, PI

LINUX, PROBE = (text.replace("@@cores\n4", "@@online\n0-3") for text in (PI, PHONE))
RUN = """\
@@placed k
@@before
cpu 0 1500000 ondemand
zone 45000 cpu-thermal
cooling 0 cpufreq-cpu
count 3
throttled 0x50005
load 0.50
MemAvailable: 900000 kB
@@end
note governor set
@@after
cpu 0 1500000 performance
@@end
ran 100.25 103.50
@@files k
10 result.json
5 output0.npy
@@data
123456789012345"""

STORE = """\
now 1700000000
link current/a ../bundles/b
file 100 1700000000 2 store/aa
folder 0 1700000000 0 bundles/b
of bundles/b
"""

BITS = ["\x1b[2J", "\x9b", "²", "９", "9" * 5000, "-1", "1.2.3", "inf", "nan", "1e999", "\ud800", "\u202e", "\x00",
        "\r", "\x85", "\u2028", "@@end", "@@before", "\n", " ", "0-" + "9" * 30, "[", "]: [", "x" * 10_000]  # fmt: skip

FILES = conditions.Files(marker="k", most=1000)

READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "probe": (PROBE, parse),
    "conditions": (RUN, lambda text: conditions.conditions(text, "performance", "0", 0.0)),
    "small files": (RUN, lambda text: FILES.brought(text.encode(errors="replace"))),
    "store": (STORE, lambda text: gc.parse(text.splitlines())),
    "adb devices": (DEVICES, parse_devices),
    "message": (RUN, lambda text: Completed((), 1, b"", text.encode(errors="replace")).message),
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_words(name: str) -> None:
    good, read = READERS[name]
    assert read(good) is not None
    noise = random.Random(5)  # noqa: S311 - the same damage every time
    for _ in range(500):
        text = good
        for _ in range(noise.randint(1, 4)):
            at = noise.randrange(len(text) + 1)
            kind = noise.randrange(3)
            if kind == 0:
                text = text[:at] + noise.choice(BITS) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + noise.randint(1, 30) :]
            else:
                # A number becomes something else.
                digits = [index for index, letter in enumerate(text) if letter.isdigit()]
                at = noise.choice(digits) if digits else 0
                text = text[:at] + noise.choice(BITS) + text[at + 1 :]
        try:
            read(text)
        except SlipwayError as error:
            assert len(str(error)) < 3000


def test_what_the_probe_says_is_plain() -> None:
    facts = parse(LINUX.replace("Raspberry Pi 4 Model B Rev 1.4\0", "Pi\x1b]0;x\x07\u202e[bold]\x9b1m::error::x"))
    assert facts.board == r"Pi]0;x[bold]1m:\x3aerror::x"
    assert facts.cores == 4
    assert parse(LINUX.replace("0-3", "0-999999999999")).cores == 1
    assert parse(LINUX.replace("3885396", "9" * 4000)).memory_total == 0
    zones = conditions.snapshot(RUN.replace("45000 cpu-thermal", "²1381 x"), "before").temperatures_c
    assert zones == {}
