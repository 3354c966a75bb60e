"""The inventory, addresses, places of a lab: what is read and refused, how clearly, and what adding a device writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError, UnreachableError, UsageError
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import CPU, FILE, VARIABLE, Device, get_device, load_devices
from deploy.lab.labgrid import PLACE, TOKEN, Service, candidates, located
from deploy.transport.ssh.config import Address, configured
from deploy.transport.ssh.spelled import Spelled, spelled
from deploy.upkeep import enrol
from toolchains.emulation import emulators
from toolchains.targets import load_targets

SSH = '[board]\ntransport = "ssh"\ntarget = "linux-arm64"\nhost = "board.local"\n'


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "devices.toml").write_text(text, encoding="utf-8")
    return tmp_path / "devices.toml"


def test_every_emulated_cpu_is_a_device_with_all_its_targets() -> None:
    devices = {name: device for name, device in load_devices(FILE).items() if name.startswith(CPU)}
    found = {(device.cpu, target) for device in devices.values() for target in (device.target, *device.targets)}
    assert found == {(cpu, target.name) for target in load_targets().values() for cpu in emulators.cpus(target)}
    assert {"cpu:cortex-a53", "cpu:Haswell", "cpu:arm1176", "cpu:sme2"} <= set(devices)
    assert all(device.emulated and device.on_request for device in devices.values())
    assert get_device("cpu:cortex-a53", FILE).target == "linux-arm64"


def test_users_file_is_added_and_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SSH + '[pi]\ntransport = "ssh"\ntarget = "linux-arm64"\nhost = "real-pi"\n'
    monkeypatch.setenv(VARIABLE, str(write(tmp_path, text)))
    devices = load_devices()
    assert list(devices) == [*load_devices(FILE), "board"]
    assert devices["pi"].host == "real-pi"
    assert not devices["pi"].emulated
    assert get_device("board", write(tmp_path, SSH + 'key = "~/.ssh/k"\n')).key == Path.home() / ".ssh/k"
    text = '[old-pi]\ntransport = "local"\ntarget = "linux-armv6"\ncpu = "arm1176"\n'
    monkeypatch.setenv(VARIABLE, str(write(tmp_path, text)))
    device = load_devices()["old-pi"]
    assert (device.cpu, device.emulated, device.on_request) == ("arm1176", True, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SSH + 'cpu = "cortex-a53"\n', ["board", "cpu or wine", "local"]),
        ('[w]\ntransport = "local"\nwine = true\n', ["[w]", "cpu or wine", "target"]),
        (SSH + "prot = 22\n", ["board", "unknown key 'prot'", "'port'"]),
        (SSH + 'port = "22"x\n', ["not TOML", "line 5"]),
        (SSH.replace("ssh", "telnet"), ["board", "transport", "local"]),
        ('[board]\ntransport = "ssh"\n', ["board", 'host = "..."']),
        (SSH + 'root = "../../etc"\n', ["board", "root", "'..'"]),
        (SSH + 'root = "/"\n', ["board", "root", "whole disk"]),
        (SSH + 'root = "a\\u001bb"\n', ["board", "root", "control"]),
        (SSH + "timeout = 0\n", ["board", "timeout"]),
        (SSH + 'name = "other"\n', ["board", "'name'"]),
        (SSH.replace("board.local", "-oProxyCommand"), ["board", "host"]),
        (SSH.replace("[board]", '["../board"]'), ["'../board'", "letters, digits"]),
        (SSH.replace("[board]", '["-rf"]'), ["'-rf'"]),
        ("transport = 'ssh'\n", ["outside every table"]),
        (SSH + "port = true\n", ["board", "port", "integer"]),
        (SSH + 'compress = "yes"\n', ["board", "compress", "boolean"]),
        (SSH + "store_gib = inf\n", ["board", "store_gib", "finite"]),
        (SSH + 'tags = ["a\\u001b[2J"]\n', ["board", "tags", "control"]),
        (SSH + 'title = "a\\u202eb"\n', ["board", "title", "control"]),
        (SSH + 'key = "~nobody-of-that-name/k"\n', ["board", "key"]),
    ],
)
def test_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_devices(file)
    for word in (str(file), *words):
        assert word in str(caught.value)


def test_unknown_devices_targets_and_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="did you mean local") as caught:
        get_device("locla", FILE)
    assert caught.value.names == ("local",)
    with pytest.raises(ConfigError, match="linux-arm65"):
        get_device("board", write(tmp_path, SSH.replace("arm64", "arm65")))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml is not there"):
        load_devices()


LAB = '[desk]\ntransport = "ssh"\nsource = "labgrid"\nplace = "rack-3"\n'


def test_a_place_of_a_lab(tmp_path: Path) -> None:
    device = load_devices(write(tmp_path, LAB))["desk"]
    assert (device.source, device.place, device.coordinator, device.host) == ("labgrid", "rack-3", "", "")
    assert not device.emulated
    assert load_devices(write(tmp_path, LAB + 'tags = ["emulated"]\n'))["desk"].emulated
    tagged = LAB.replace('place = "rack-3"', 'place_tags = ["kind=pi", "ram=8g"]')
    assert load_devices(write(tmp_path, tagged))["desk"].place_tags == ("kind=pi", "ram=8g")
    for wrong in ('["kind"]', '["Kind=pi"]', '["kind=p i"]', '"kind=pi"'):
        with pytest.raises(ConfigError, match=r"table \[desk\] is not a device"):
            load_devices(write(tmp_path, LAB.replace('place = "rack-3"', f"place_tags = {wrong}")))
    phone = LAB.replace("ssh", "adb").replace('place = "rack-3"\n', "")
    assert load_devices(write(tmp_path, phone))["desk"].transport == "adb"


@pytest.mark.parametrize("change", [
    'host = "a"', 'virtual = "pi"', 'serial = "a"', 'transport = "local"', 'source = "else"', 'source = ""',
    'place = "-p x"', 'place_tags = ["kind=pi"]', 'jump = "-oProxyCommand=x"',
])  # fmt: skip
def test_a_place_that_is_none(tmp_path: Path, change: str) -> None:
    key = change.partition(" ")[0]
    kept = "".join(line + "\n" for line in LAB.splitlines() if not line.startswith(f"{key} "))
    with pytest.raises(ConfigError, match=r"table \[desk\] is not a device"):
        load_devices(write(tmp_path, f"{kept}{change}\n"))


PI = DeviceFacts(
    system="Linux", machine="armv7l", kernel="6.6", root="/home/pi/.slipway", board="Raspberry Pi 2 Model B",
    cpu="Cortex-A7", cpu_features=("neon",), loaders=("/lib/ld-linux-armhf.so.3",), hostname="raspberrypi",
)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/slipway/devices.toml"


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """What was connected to: at every address there is the Pi."""
    made: list[Device] = []

    @contextlib.contextmanager
    def open_device(device: Device, *_: Any) -> Iterator[SimpleNamespace]:
        made.append(device)
        yield SimpleNamespace(posix=True)

    monkeypatch.setattr(enrol, "open_device", open_device)
    monkeypatch.setattr(enrol, "probe", lambda *_: PI)
    return made


@pytest.mark.parametrize(
    ("address", "host", "port", "user", "name"),
    [
        ("pi@raspberrypi.local", "raspberrypi.local", 0, "pi", "raspberrypi"),
        ("shelf", "shelf", 0, "", "shelf"),
        ("root@[fe80::1]:22", "fe80::1", 22, "root", "fe80-1"),
    ],
)
def test_over_ssh(file: Path, met: list[Device], address: str, host: str, port: int, user: str, name: str) -> None:
    device = enrol.add(ssh=address).device
    assert (met[0].host, met[0].port, met[0].user) == (host, port, user)
    assert (device.host, device.port, device.user, device.name) == (host, port, user, name)
    assert (device.target, device.title) == ("linux-armv7", "Raspberry Pi 2 Model B, Cortex-A7")


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "x\ny", "x" * 64])
def test_a_name_that_is_none_is_refused_before_anything_is_written(file: Path, met: list[Device], name: str) -> None:
    with pytest.raises(ConfigError):
        enrol.add(ssh="shelf", name=name)
    assert met == []
    assert not file.exists()


@pytest.mark.parametrize("words", [{}, {"adb": "x", "ssh": "y"}, {"ssh": "x:y"}, {"adb": "x;y"}])
def test_addresses_that_are_none(file: Path, met: list[Device], words: dict[str, str]) -> None:
    with pytest.raises((UsageError, ConfigError)):
        enrol.add(**words)
    assert met == []
    assert not file.exists()


def test_a_device_that_does_not_answer_is_not_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise UnreachableError("gone")

    monkeypatch.setattr(enrol, "open_device", nobody)
    with pytest.raises(UnreachableError):
        enrol.add(ssh="shelf")
    assert not file.exists()


@pytest.mark.parametrize(
    ("host", "port", "user"),
    [("-oProxyCommand=x", 22, "pi"), ("a b", 22, "pi"), ("pi\x1b[2J", 22, "pi"), ("pi", -1, "pi"), ("pi", 22, "-l x")],
)
def test_what_a_lab_says_is_checked_like_the_inventory(host: str, port: int, user: str) -> None:
    desk = Device(name="desk", transport="ssh", source="labgrid", place="rack")
    assert located(desk, Service("10.0.0.7", 2222, "pi")).port == 2222
    with pytest.raises(ConfigError, match="does not accept the address of") as caught:
        located(desk, Service(host, port, user))
    assert "\x1b" not in str(caught.value)


READ = {
    "pi": Spelled("pi"), "pi@raspberrypi.local": Spelled("raspberrypi.local", "pi"),
    "192.168.1.5:2222": Spelled("192.168.1.5", "", 2222), "ssh://pi@h:22": Spelled("h", "pi", 22),
    "me@example.org@h": Spelled("h", "me@example.org"), "pi@[::1]:2222": Spelled("::1", "pi", 2222),
    "[fe80::1%eth0]": Spelled("fe80::1%eth0"), "[h]:2222": Spelled("h", "", 2222),
    "pi@fe80::1%eth0": Spelled("fe80::1%eth0", "pi"), "::1": Spelled("::1"),
    "2001:db8:1:2:3:4:5:beef": Spelled("2001:db8:1:2:3:4:5:beef"),
}  # fmt: skip
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


@pytest.fixture
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
    read: list[Any] = [configured("x", "far", jump=f"first,{text}").jump, load_devices()["x"]]
    if not found.bare:
        read.append(enrol.device_of(text))
    for one in read:
        assert one.host == found.host
        assert (one.user if found.user else "", one.port if found.port else 0) == (found.user, found.port)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_what_is_no_address_is_explained(text: str, said: str) -> None:
    for read in (enrol._ssh_table, enrol.device_of) if text in MARKED else (enrol._ssh_table,):
        with pytest.raises(UsageError, match="is not an address") as caught:
            read(text)
        assert said in caught.value.cause
        assert "USER@[IPV6]:PORT" in caught.value.hint
    with pytest.raises(ConfigError) as jumps:
        configured("x", "far", jump=text)
    assert said in jumps.value.cause


@pytest.mark.usefixtures("home")
def test_what_we_say_and_an_alias_can_be_typed() -> None:
    for host, port, text in (("::1", 2222, "pi@[::1]:2222"), ("::1", 22, "pi@[::1]"), ("h", 22, "pi@h")):
        address = Address("x", host, port, "pi", None, ())
        assert str(address) == text
        assert (enrol.device_of(text).host, enrol.device_of(text).port or 22) == (host, port)
    (address,) = enrol.hosts(enrol.device_of("shelf"))
    assert (address.host, address.port, address.user, address.record) == ("::1", 2222, "pi", "[::1]:2222")
    assert enrol.device_of("board").host == "::1"
    with pytest.raises(ConfigError, match="There is no device 'shelff'"):
        enrol.device_of("shelff")


def test_an_address_in_place_of_a_device_and_one_that_contradicts_its_port(home: Path) -> None:
    with pytest.raises(ConfigError, match="There is no device") as caught:
        get_device("pi@[::2]")
    assert "it is an address" in caught.value.cause
    assert caught.value.hint.endswith("./inv devices.add --ssh 'pi@[::2]'")
    with pytest.raises(ConfigError, match="There is no device 'cpu:cortex-z9'"):
        get_device("cpu:cortex-z9")
    (home / "devices.toml").write_text('[x]\ntransport = "ssh"\nhost = "pi@h:22"\nport = 23\n')
    with pytest.raises(ConfigError, match="is not a device") as caught:
        load_devices()
    assert "host says port 22, and port = 23" in caught.value.cause


def _place(name: str, **tags: str) -> Any:
    return SimpleNamespace(name=name, tags=tags, aliases={"me:mine"}, reservation=None, acquired=None, allowed=set())


THERE = {"board": _place("board", board="pi4"), "spare": _place("spare", board="pi3")}
PLACES: Any = SimpleNamespace(
    address="lab:1", name="desk/me", session=SimpleNamespace(places=THERE, getuser=lambda: "me")
)


def _device(**known: Any) -> Device:
    return Device(name="rack", transport="ssh", target="linux-arm64", source="labgrid", **known)


@pytest.mark.parametrize(
    ("known", "place", "token", "cause"),
    [
        ({"place": "bord"}, "", "", "did you mean board? there are board"),
        ({"place": "min"}, "", "", "did you mean mine? there are board, spare"),
        ({"place_tags": ("board=pi7",)}, "board", "", "there are board, spare, with board=pi3, board=pi4"),
        ({}, "sparee", "", "did you mean spare?"),
        ({}, "+", "", "there are"),
        ({}, "+", "ABC", "there are"),
        ({}, "+ABC", "", "there are"),
    ],
)
def test_a_place_that_is_not_there(
    known: dict[str, Any], place: str, token: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, place)
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(ConfigError) as caught:
        candidates(PLACES, _device(**known))
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint == "correct place or place_tags of [rack], or LG_PLACE; labgrid-client -x lab:1 places"
