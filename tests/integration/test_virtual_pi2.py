"""The virtual Pi 2: a 32-bit Cortex-A7 with NEON, and static programs on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import cache_dir
from deploy.devices.identify import choose_target
from deploy.devices.inventory import FILE, get_device, load_devices
from deploy.run.connect import open_device
from deploy.virtual import machines as virtual
from tests.conftest import Inv
from tests.support.devices import facts_of, own_devices, refuses, runs_programs

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


def test_it_is_added_by_its_name_in_the_users_ssh_configuration(inv: Inv, tmp_path: Path) -> None:
    """As a user has a real one: a Host of ``~/.ssh/config``, its key on record, nothing in any inventory."""
    end = virtual.ensure("pi2")
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "known_hosts").write_bytes(end.known_hosts.read_bytes())
    lines = ["Host shelf", f"HostName {end.host}", f"Port {end.port}", f"User {end.user}", f"IdentityFile {end.key}"]
    (ssh / "config").write_text("\n  ".join(lines) + "\n")
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "SLIPWAY_CACHE": str(cache_dir())}
    done = inv("devices.add", "--ssh", "shelf", "--json", env=env)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["file"] == str(tmp_path / "config/slipway/devices.toml")
    assert (said["device"]["name"], said["device"]["target"]) == ("shelf", "linux-armv7")
    (device,) = load_devices(Path(said["file"])).values()
    assert (device.host, device.transport, device.title) == ("shelf", "ssh", "linux,dummy-virt, Cortex-A7")
