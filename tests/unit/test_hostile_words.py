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

PROBE = """
@@system
Linux
aarch64
6.1.0
pi

@@home
/home/pi

@@root
/home/pi/.slipway

@@near
/home/pi

@@writable
yes

@@df
Filesystem 1024-blocks Used Available Capacity Mounted on
/dev/root 1000000 1 999999 1% /

@@mounts
/dev/root / ext4 rw,relatime 0 0

@@cpuinfo
processor : 0
CPU implementer : 0x41
CPU part : 0xd08
Features : fp asimd

@@board
Raspberry Pi 4

@@online
0-3

@@memory
MemTotal: 1000000 kB
MemAvailable: 900000 kB

@@load
0.5 0.1 0.1 1/100 5

@@loaders
/lib/ld-linux-aarch64.so.1

@@libraries
libc.so.6 /lib/libc.so.6

@@glibc
GLIBC_2.36

@@getconf
glibc 2.36

@@glibcxx
GLIBCXX_3.4.30

@@tools
stat

@@governor
ondemand

@@frequency
1500000

@@zones
45000 cpu-thermal
Temperature{mValue=31.5, mType=0, mName=CPU, mStatus=0}

@@android
[ro.build.version.sdk]: [34]
[ro.product.model]: [Phone]

@@end
"""

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
    for _ in range(1500):
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
    linux = PROBE.replace("[ro.product.model]: [Phone]\n", "")
    facts = parse(linux.replace("Raspberry Pi 4", "Pi\x1b]0;x\x07\u202e[bold]\x9b1m::error::x"))
    assert facts.board == r"Pi]0;x[bold]1m:\x3aerror::x"
    assert facts.cores == 4
    assert parse(PROBE.replace("0-3", "0-999999999999")).cores == 1
    assert parse(PROBE.replace("MemTotal: 1000000", "MemTotal: " + "9" * 4000)).memory_total == 0
    assert parse(PROBE.replace("45000 cpu-thermal", "²5000 x")).state.zones == {"CPU": 31.5}
