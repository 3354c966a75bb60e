"""The virtual devices beyond the Pi and the phone: what each one is, and programs and deploys on it.

Each boots once, and the tests of one device stay on one worker (tests/support/order.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.formats.bundle import Bundle
from core.paths import cache_dir
from deploy.devices.conditions import snapshot
from deploy.devices.facts import choose_target
from deploy.devices.inventory import FILE, get_device, load_devices
from deploy.run.connect import open_device
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.result import EMULATED, Result
from deploy.run.settings import Settings
from deploy.scripts import script
from deploy.virtual import machines as virtual
from tests.conftest import Inv
from tests.support.devices import ask, facts_of, own_devices, refuses, runs_programs
from tests.support.processes import well
from toolchains.bundle.builder import build

pytestmark = pytest.mark.virtual


@dataclass(frozen=True)
class Machine:
    """A virtual device, and what must be seen of it."""

    name: str
    machine: str
    """As ``uname -m`` has it."""
    features: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    """Features that it must not have."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts, by their names."""
    refused: tuple[str, ...] = ()
    """Targets whose programs cannot run on it."""
    engine: str = "executorch"
    """Its target's own, which is deployed."""


MACHINES = {
    one.name: one
    for one in (
        Machine(
            "pi2", "armv7l", ("neon", "vfpv4", "idiva"),
            facts={"cpu": "Cortex-A7", "cores": 2, "loaders": ("/lib/ld-linux-armhf.so.3",), "glibc": "2.36"},
            refused=("linux-arm64",),
        ),
        # The least 64-bit Arm there is.
        Machine(
            "pi3", "aarch64", ("asimd", "crc32"), ("asimddp", "fphp", "atomics", "sve"), facts={"cpu": "Cortex-A53"}
        ),
        Machine(
            "pi5", "aarch64", ("asimddp", "fphp", "asimdhp", "atomics"), ("i8mm", "bf16", "sve", "sme"),
            facts={"cpu": "Cortex-A76"},
        ),
        # SVE2 and SME2 in the guest, as a newer QEMU and kernel offer them.
        Machine("sme", "aarch64", ("sve2", "sme", "sme2", "i8mm", "bf16")),
        # The board itself; the loader is soft float's: Debian's armel.
        Machine(
            "pi-zero", "armv6l", ("vfp",), ("neon", "vfpv3", "idiva"),
            facts={"cpu": "ARM1176", "cores": 1, "board": "Raspberry Pi Zero", "loaders": ("/lib/ld-linux.so.3",)},
            refused=("linux-armv7",), engine="lean",
        ),
        # 32 bits all through, over adb.
        Machine(
            "phone-armv7", "armv7l", ("neon",), facts={"cpu": "Cortex-A7", "abis": ("armeabi-v7a", "armeabi")},
            refused=("android-arm64",), engine="lean",
        ),
    )
}  # fmt: skip


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("machine", names, indirect=True)


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """It ends when the next one's tests begin."""
    with own_devices(tmp_path_factory):
        yield MACHINES[request.param]


@pytest.fixture(scope="module")
def bundle(machine: Machine) -> Bundle:
    """Of the machine's target, with that target's own engine."""
    return build(get_device(machine.name, FILE).target)


def deployed(machine: Machine, bundle: Bundle, program: Path) -> Result:
    settings = Settings(num_executions=1, warmup=0, timeout=400)
    return deploy(get_device(machine.name, FILE), bundle, program, settings, listeners=[])


@on(*MACHINES)
def test_it_is_what_its_name_says(machine: Machine) -> None:
    device = get_device(machine.name, FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
    assert facts.machine == machine.machine
    assert {name: getattr(facts, name) for name in machine.facts} == machine.facts
    assert set(machine.features) <= set(facts.cpu_features)
    assert not set(machine.lacks) & set(facts.cpu_features)
    assert choose_target(facts) == device.target


@on("pi-zero")
def test_the_zero_has_its_memory_its_sensor_and_the_time(machine: Machine) -> None:
    """The board has no clock: it gets the time when it starts."""
    device = get_device(machine.name, FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
        assert abs(int(ask(transport, "date +%s")) - time.time()) < 600
        state = snapshot(ask(transport, script("state"), "/sys"))
    assert set(state.temperatures_c) == {"cpu-thermal"}
    assert 400 << 20 < facts.memory_total < 512 << 20


@on("pi2", "pi-zero", "phone-armv7")
def test_static_programs_run(machine: Machine, tmp_path: Path) -> None:
    runs_programs(machine.name, get_device(machine.name, FILE).target, tmp_path)


@on(*(name for name, one in MACHINES.items() if one.refused))
def test_programs_of_later_processors_are_refused(machine: Machine) -> None:
    for target in machine.refused:
        refuses(machine.name, target)


@pytest.mark.build
@pytest.mark.export
@on("sme", "pi-zero", "phone-armv7")
def test_outputs_agree_with_the_hosts(machine: Machine, bundle: Bundle, program: Path, dist: Path) -> None:
    result = deployed(machine, bundle, program)
    assert result.verdict in ({"agrees"} if machine.name == "phone-armv7" else {"identical", "agrees"})
    assert (result.bundle.target, result.bundle.engine) == (get_device(machine.name, FILE).target, machine.engine)
    assert (result.emulated, result.latency_note) == (True, EMULATED)
    assert result.facts.cpu == machine.facts.get("cpu", result.facts.cpu)
    assert set(machine.features) <= set(result.facts.cpu_features)
    assert (bundle.manifest.needs.libc == "static") == (machine.engine == "lean")


BUSY = """#!/bin/sh
(i=0; while [ $i -lt 40000 ]; do i=$((i + 1)); done) &
set -e
cp pte_runner run && chmod +x run
./run --model_path=model.pte --inputs=input0.npy --count_instructions --num_executions=9 --warmup=1 \\
  --cpu_threads=1 --json=result.json >&2
cat result.json
wait
"""


@pytest.mark.build
@pytest.mark.export
@on("pi3", "phone-armv7")
def test_what_runs_beside_a_program_is_not_in_its_count(machine: Machine, program: Path, tmp_path: Path) -> None:
    """A shell's loop is longer than the program's start: executions that run beside it would differ from each other."""
    (tmp_path / "beside").write_text(BUSY, encoding="ascii")
    runner = build(get_device(machine.name, FILE).target, "lean").path / "bin" / "pte_runner"
    files = [runner, program / "model.pte", program / "input0.npy"]
    done = execute(get_device(machine.name, FILE), tmp_path / "beside", files=files)
    assert done.code == 0, done.stderr
    counts = json.loads(done.stdout)["instructions"]["all"]
    assert len(counts) == 9
    assert max(counts) - min(counts) < 1000


@on("pi2")
def test_it_is_added_by_its_name_in_the_users_ssh_configuration(machine: Machine, inv: Inv, tmp_path: Path) -> None:
    """As a user has a real one: a Host of ``~/.ssh/config``, its key on record, nothing in any inventory."""
    end = virtual.ensure("pi2")
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "known_hosts").write_bytes(end.known_hosts.read_bytes())
    lines = ["Host shelf", f"HostName {end.host}", f"Port {end.port}", f"User {end.user}", f"IdentityFile {end.key}"]
    (ssh / "config").write_text("\n  ".join(lines) + "\n")
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "SLIPWAY_CACHE": str(cache_dir())}
    said = json.loads(well(inv("devices.add", "--ssh", "shelf", "--json", env=env)).stdout)
    assert said["file"] == str(tmp_path / "config/slipway/devices.toml")
    assert (said["device"]["name"], said["device"]["target"]) == ("shelf", "linux-armv7")
    (device,) = load_devices(Path(said["file"])).values()
    assert (device.host, device.transport, device.title) == ("shelf", "ssh", "linux,dummy-virt, Cortex-A7")
