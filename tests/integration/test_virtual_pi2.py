"""The virtual Pi 2: a 32-bit Cortex-A7 with NEON, and static programs on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.identify import choose_target
from deploy.inventory import FILE, get_device
from deploy.pipeline import open_device
from tests.devices import facts_of, own_devices, refuses, runs_programs

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


def test_it_is_a_32_bit_arm_with_neon() -> None:
    device = get_device("pi2", FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
    assert (facts.machine, facts.cpu, facts.cores) == ("armv7l", "Cortex-A7", 2)
    assert {"neon", "vfpv4", "idiva"} <= set(facts.cpu_features)
    assert (facts.loaders, facts.glibc) == (("/lib/ld-linux-armhf.so.3",), "2.36")
    assert choose_target(facts) == device.target


def test_static_programs_run(tmp_path: Path) -> None:
    runs_programs("pi2", "linux-armv7", tmp_path)


def test_64_bit_programs_are_refused() -> None:
    refuses("pi2", "linux-arm64")
