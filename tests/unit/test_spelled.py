"""One spelling of addresses in all commands and files: what goes in comes out, and what is refused is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError, UsageError
from deploy.devices.inventory import VARIABLE, get_device, load_devices
from deploy.transport.ssh.config import Address, configured
from deploy.transport.ssh.spelled import Spelled, spelled
from deploy.upkeep import enrol, trust

READ = {
    "pi": Spelled("pi"),
    "pi@raspberrypi.local": Spelled("raspberrypi.local", "pi"),
    "192.168.1.5:2222": Spelled("192.168.1.5", "", 2222),
    "ssh://pi@h:22": Spelled("h", "pi", 22),
    "me@example.org@h": Spelled("h", "me@example.org"),
    "pi@[::1]:2222": Spelled("::1", "pi", 2222),
    "[fe80::1%eth0]": Spelled("fe80::1%eth0"),
    "[h]:2222": Spelled("h", "", 2222),
    "pi@fe80::1%eth0": Spelled("fe80::1%eth0", "pi"),
    "::1": Spelled("::1"),
    "2001:db8:1:2:3:4:5:beef": Spelled("2001:db8:1:2:3:4:5:beef"),
}
REFUSED = {
    "pi@::1:2222": "[::1]:2222 for port 2222, and [::1:2222] for that address",
    "1:2:3:4:5:6:7:8:2222": "[1:2:3:4:5:6:7:8]:2222 for port 2222",
    "h:0": "'0' is no port",
    "h:99999": "'99999' is no port",
    "h:ssh": "the host would be h, and 'ssh' is no port",
    "a:b:c": "'a:b:c' is no IPv6 address",
    "[::1": "is no host",
    "[::1]2222": "is no host",
    "pi@": "'' is no host",
    "-oProxyCommand=x@h": "is no user",
    "pi@-oProxyCommand=x": "is no host",
    "a b": "'a b' is no host",
}
MARKED = [text for text in REFUSED if set(text) & set("@:[")]
"""Those that cannot be a device's name."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an alias, and a device."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host shelf\n HostName ::1\n Port 2222\n User pi\n")
    (tmp_path / "devices.toml").write_text('[board]\ntransport = "ssh"\nhost = "pi@[::1]:2222"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "devices.toml"))
    return tmp_path


@pytest.mark.parametrize(("text", "found"), READ.items())
def test_every_command_reads_the_same(text: str, found: Spelled, home: Path) -> None:
    assert spelled(text) == spelled(str(found)) == found
    table = {"transport": "ssh", "host": found.host, "user": found.user, "port": found.port}
    assert enrol._ssh_table(text) == {key: value for key, value in table.items() if value}
    (home / "devices.toml").write_text(f'[x]\ntransport = "ssh"\nhost = "{text.removeprefix("ssh://")}"\n')
    jump = configured("x", "far", jump=f"first,{text}").jump
    assert jump is not None
    device = load_devices()["x"]
    read = [(jump.host, jump.user, jump.port), (device.host, device.user, device.port)]
    if not found.bare:
        device = trust.device_of(text)
        read.append((device.host, device.user, device.port))
    for host, user, port in read:
        assert (host, user if found.user else "", port if found.port else 0) == (found.host, found.user, found.port)


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_is_no_address_is_explained(text: str, said: str) -> None:
    for read in (enrol._ssh_table, trust.device_of) if text in MARKED else (enrol._ssh_table,):
        with pytest.raises(UsageError, match="is not an address") as caught:
            read(text)
        assert said in caught.value.cause
        assert "USER@[IPV6]:PORT" in caught.value.hint
    with pytest.raises(ConfigError) as jumps:
        configured("x", "far", jump=text)
    assert said in jumps.value.cause


def test_what_we_say_and_an_alias_can_be_typed() -> None:
    for host, port, text in (("::1", 2222, "pi@[::1]:2222"), ("::1", 22, "pi@[::1]"), ("h", 22, "pi@h")):
        address = Address("x", host, port, "pi", None, ())
        assert str(address) == text
        assert (trust.device_of(text).host, trust.device_of(text).port or 22) == (host, port)
    (address,) = trust.hosts(trust.device_of("shelf"))
    assert (address.host, address.port, address.user, address.record) == ("::1", 2222, "pi", "[::1]:2222")
    assert trust.device_of("board").host == "::1"
    with pytest.raises(ConfigError, match="There is no device 'shelff'"):
        trust.device_of("shelff")


def test_an_address_in_place_of_a_device_and_one_that_contradicts_its_port(home: Path) -> None:
    with pytest.raises(ConfigError, match="is an address") as caught:
        get_device("pi@[::1]:2222")
    assert caught.value.hint == "the same command with board"
    with pytest.raises(ConfigError, match="is an address") as caught:
        get_device("pi@[::2]")
    assert caught.value.hint == "./inv devices.add --ssh 'pi@[::2]', which gives it a name"
    with pytest.raises(ConfigError, match="There is no device 'cpu:cortex-z9'"):
        get_device("cpu:cortex-z9")
    (home / "devices.toml").write_text('[x]\ntransport = "ssh"\nhost = "pi@h:22"\nport = 23\n')
    with pytest.raises(ConfigError, match="is not a device") as caught:
        load_devices()
    assert "host says port 22, and port = 23" in caught.value.cause
